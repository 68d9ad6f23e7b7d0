"""Which prompt prefixes an engine's KV cache holds: its events about blocks, told in the producer's hashes."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from protocol.prefix import PREFIX_CHARS, shared_tokens
from worker.engine.base import PREFIXES_KEPT

SESSIONS_KEPT = 4_096
"""So many requests are remembered: their ends and the events of their blocks come in any order, or never."""
BLOCKS_UNKNOWN = 1 << 20
"""So many blocks are followed of an engine that does not tell how many it has."""


@dataclass(slots=True)
class _Block:
    """A block of the engine's cache; `depth` counts the blocks before it, `root` is the first of them."""

    parent: int | None
    depth: int
    root: int
    copies: int = 0
    """Requests that began together each computed one; each copy is told when it is stored and when it goes."""


@dataclass(frozen=True, slots=True)
class _Prompt:
    prefix: tuple[str, ...]
    text_chars: int
    prompt_tokens: int


@dataclass(slots=True)
class _Session:
    """What is known of one request: its deepest block, and its prompt once it has ended."""

    root: int | None = None
    tail: int | None = None
    prompt: _Prompt | None = None
    mixed: bool = False
    """It has several prompts, so nobody knows which one the hashes mean."""


class PrefixIndex:
    """The prefix hashes whose blocks are in the cache, by its events or, where there are none, by own bookkeeping.

    Prefix hash i stands for the first `PREFIX_CHARS[i]` characters of the prompt, and so for the blocks that cover the
    first `prompt_tokens · PREFIX_CHARS[i] / text_chars` tokens. That is rounded up to whole blocks: a hash is told
    only while every block that holds a part of it is there. A chat template shifts the share by its few tokens.

    Not thread-safe; memory is bounded by the cache's own size and the constants above, whatever is told.

    Args:
        block_tokens: tokens of one block.
        kv_tokens: what the cache holds; 0 when unknown.
    """

    def __init__(self, block_tokens: int, kv_tokens: int) -> None:
        self._block_tokens, self._kv_tokens = max(1, block_tokens), kv_tokens
        # Twice what there is, should the engine round its figures.
        self._most_blocks = 2 * kv_tokens // self._block_tokens or BLOCKS_UNKNOWN
        self._blocks: dict[int, _Block] = {}
        self._children: dict[int, set[int]] = {}
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._held: OrderedDict[str, int | None] = OrderedDict()
        self._standing: dict[int, set[str]] = {}
        self._assumed = _Assumed()
        self._told: frozenset[str] | None = frozenset()

    def hashes(self) -> frozenset[str]:
        """Those that are held, at most `PREFIXES_KEPT`; the same object while nothing changes."""
        if self._told is None:
            self._told = frozenset(self._held)
        return self._told

    def stored(self, session_id: str, parent: int | None, hashes: Sequence[int]) -> None:
        """The request `session_id` (may be empty) filled blocks: a chain behind `parent`; None is the beginning.

        Blocks behind one that is not known, because it was stored before anybody listened, are left out. Of an engine
        with several groups of layers tell only one group's blocks.
        """
        if not hashes or (parent is not None and parent not in self._blocks):
            return
        for block in hashes:
            self._add(block, parent)
            parent = block
        while len(self._blocks) > self._most_blocks:
            self._drop(next(iter(self._blocks)))
        if session_id and hashes[-1] in self._blocks:
            self._follow(self._session(session_id), hashes[-1])

    def removed(self, hashes: Iterable[int]) -> None:
        """One copy of each of these blocks is gone. With its last copy goes what stands on it or behind it."""
        for name in hashes:
            if block := self._blocks.get(name):
                block.copies -= 1
                if not block.copies:
                    self._drop(name)

    def cleared(self) -> None:
        """The cache is empty: reset, sleep, or a new engine. What still runs is not known any more."""
        self._blocks.clear()
        self._children.clear()
        self._sessions.clear()
        self._held.clear()
        self._standing.clear()
        self._assumed = _Assumed()
        self._told = frozenset()

    def prompt(self, session_id: str, prefix: tuple[str, ...], text_chars: int, prompt_tokens: int) -> None:
        """A request's prompt, once the engine has said how many tokens it has.

        A request that found all its blocks in the cache stored none. Its hashes are then those of an earlier one.
        """
        if not prefix or text_chars <= 0 or prompt_tokens <= 0:
            return
        self._touch(prefix)
        session = self._session(session_id)
        session.prompt = _Prompt(prefix[: len(PREFIX_CHARS)], text_chars, prompt_tokens)
        self._claim(session)

    def assumed(self, prefix: tuple[str, ...], prompt_tokens: int) -> None:
        """A prompt was computed by an engine that tells no events: the last ones that fit its cache are in it.

        Each hash weighs the tokens that lie between the one before it and itself, by estimate. Output is not counted.
        """
        gone = self._assumed.add(prefix, prompt_tokens, self._kv_tokens)
        for name in reversed(prefix):
            self._hold(name, None)
        for name in gone:
            self._forget(name)
        self._trim()

    def _add(self, name: int, parent: int | None) -> None:
        if name not in self._blocks:
            before = None if parent is None else self._blocks[parent]
            self._blocks[name] = _Block(parent, before.depth + 1, before.root) if before else _Block(None, 0, name)
            if parent is not None:
                self._children.setdefault(parent, set()).add(name)
        self._blocks[name].copies += 1

    def _drop(self, name: int) -> None:
        """Forget a block and all behind it: without it they can't be reached."""
        going = [name]
        while going:
            name = going.pop()
            parent = self._blocks.pop(name).parent
            going += self._children.pop(name, ())
            if parent in self._children:
                self._children[parent].discard(name)
            for prefix in tuple(self._standing.get(name, ())):
                self._forget(prefix)

    def _session(self, session_id: str) -> _Session:
        session = self._sessions.setdefault(session_id, _Session())
        self._sessions.move_to_end(session_id)
        if len(self._sessions) > SESSIONS_KEPT:
            self._sessions.popitem(last=False)
        return session

    def _follow(self, session: _Session, block: int) -> None:
        """Remember the deepest block: all that lie before it are found from there."""
        seen = self._blocks[block]
        session.mixed |= session.root not in (None, seen.root)
        session.root = seen.root
        last = None if session.tail is None else self._blocks.get(session.tail)
        if last is None or last.depth < seen.depth:
            session.tail = block
        self._claim(session)

    def _claim(self, session: _Session) -> None:
        """Hold the prompt's hashes, as far as its chain of blocks reaches."""
        prompt = session.prompt
        if prompt is None or session.mixed or session.tail not in self._blocks:
            return
        chain = self._chain(session.tail)
        tokens, chars = prompt.prompt_tokens, prompt.text_chars * self._block_tokens
        # The longest first, so that it is also the first that is forgotten.
        for index in reversed(range(len(prompt.prefix))):
            blocks = -(-tokens * PREFIX_CHARS[index] // chars)
            if blocks <= len(chain):
                self._hold(prompt.prefix[index], chain[blocks - 1])
        self._trim()

    def _chain(self, tail: int | None) -> list[int]:
        """The blocks from the beginning to `tail`."""
        chain = []
        while tail is not None:
            chain.append(tail)
            tail = self._blocks[tail].parent
        return chain[::-1]

    def _hold(self, name: str, block: int | None) -> None:
        told = self._told if name in self._held else None
        self._forget(name)
        self._held[name], self._told = block, told
        if block is not None:
            self._standing.setdefault(block, set()).add(name)

    def _forget(self, name: str) -> None:
        if name not in self._held:
            return
        self._told = None
        block = self._held.pop(name)
        if block is not None:
            self._standing[block].discard(name)
            if not self._standing[block]:
                del self._standing[block]

    def _touch(self, prefix: tuple[str, ...]) -> None:
        for name in reversed(prefix):
            if name in self._held:
                self._held.move_to_end(name)

    def _trim(self) -> None:
        while len(self._held) > PREFIXES_KEPT:
            self._forget(next(iter(self._held)))


class _Assumed:
    """Tokens that a cache got to hold, the least recently used first."""

    def __init__(self) -> None:
        self._weights: OrderedDict[str | int, int] = OrderedDict()
        self._total = self._prompts = 0

    def add(self, prefix: tuple[str, ...], prompt_tokens: int, kv_tokens: int) -> list[str]:
        """Count a prompt; the hashes that had to give way."""
        self._prompts += 1
        # What lies behind the last hash is nobody else's: it has a number for a name.
        name: str | int = self._prompts
        after = prompt_tokens
        for index in reversed(range(len(prefix))):
            before = shared_tokens(prompt_tokens, index + 1)
            self._put(name, after - before)
            name, after = prefix[index], before
        self._put(name, after)
        gone = []
        while self._weights and (self._total > kv_tokens or len(self._weights) > 2 * PREFIXES_KEPT):
            oldest, tokens = self._weights.popitem(last=False)
            self._total -= tokens
            if isinstance(oldest, str):
                gone.append(oldest)
        return gone

    def _put(self, name: str | int, tokens: int) -> None:
        self._total += tokens - self._weights.pop(name, 0)
        self._weights[name] = tokens
