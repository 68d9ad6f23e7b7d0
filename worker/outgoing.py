"""What one attempt still has to tell Redis: frames, then its end. Bookkeeping without I/O."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar, cast

from protocol.call import Call
from protocol.functions import STALE, UPROOTED, Finished, FinishReply, emit, finish, requeue
from protocol.handle import Handle
from protocol.messages import Position
from protocol.wire import JsonObject
from worker.engine.openai_rules import speaks
from worker.gathered import Gathered
from worker.verdict import Finish, GiveBack

T = TypeVar("T")
Reply = int | FinishReply | str
"""Of `emit`, of `finish`, of `requeue`."""

KEPT_FRAMES = 80
"""Frames kept after Redis had them: a server that restarts may have lost the last two seconds."""


@dataclass(frozen=True, slots=True)
class _Frame:
    seq: int
    chunks: list[JsonObject]
    tokens: int
    ids: list[int]


@dataclass(slots=True, eq=False)
class Outgoing:
    """One attempt's way out.

    Attributes:
        first_token_after_ms: from the start to the first token; -1 until there is one.
        accepted: whether Redis recorded the end.
        first_token_ms: its time as Redis recorded it, once the end is; 0 before, and where there was none.
        finished_ms: when Redis recorded the end; 0 where it did not, or does not tell.
        over: nothing more may be written: it is recorded, given back, or not ours any more.
        broken: the log lacks frames that nobody has any more; only another attempt can mend that.
    """

    handle: Handle
    attempt: int
    worker: str
    first_token_after_ms: int = -1
    accepted: bool = False
    first_token_ms: int = 0
    finished_ms: int = 0
    over: bool = False
    broken: bool = False
    _ending: Finish | GiveBack | None = None
    _waiting: Gathered = field(default_factory=Gathered)
    _frames: deque[_Frame] = field(default_factory=deque)
    _tokens: int = 0
    _ids: list[int] = field(default_factory=list)
    _after: Position | None = None
    _last: int = 0
    _logged: int = 0

    def begin(self, after: Position | None) -> None:
        """Say whose text this attempt goes on with, before it says anything: by its last frame; None for nobody's."""
        self._after = after
        self._last = self._logged = self._root
        # An engine that refused may have brought something already.
        self._waiting, self._tokens, self._ids = Gathered(), 0, []

    def say(self, chunk: JsonObject, ids: Sequence[int] = (), tokens: int | None = None) -> None:
        """Add a chunk to the next frame, and its tokens or their number where they are known."""
        self._waiting.add(chunk)
        self._tokens += speaks(chunk) if tokens is None else tokens
        self._ids += ids

    def note(self, ids: Sequence[int]) -> None:
        """Add tokens that have no text yet to the next frame."""
        self._ids += ids

    def end(self, ending: Finish | GiveBack) -> None:
        """Say how it ends, after all that was said before."""
        self._ending = ending

    @property
    def gathering(self) -> bool:
        """Whether chunks wait for their frame."""
        return bool(self._waiting)

    @property
    def ends(self) -> bool:
        """Whether the next calls hold its finish."""
        return isinstance(self._ending, Finish)

    @property
    def unanswered(self) -> bool:
        """Whether something must be sent (again) now: frames that the log lacks, or the end."""
        return not self.over and (self._ending is not None or self._last > self._logged)

    def calls(self) -> list[Call[Reply]]:
        """All that Redis does not have yet, in order; chunks that wait become one frame."""
        if self._waiting:
            self._last += 1
            self._frames.append(_Frame(self._last, self._waiting.merged(), self._tokens, self._ids))
            self._waiting, self._tokens, self._ids = Gathered(), 0, []
        calls = [self._emit(frame) for frame in self._missing()]
        if isinstance(self._ending, Finish):
            outcome, first = self._ending.outcome, self.first_token_after_ms
            said = self._last if self._last > self._root else 0
            end = Finished(self.handle, self.attempt, self.worker, said, outcome, first)
            calls.append(_widened(finish(end)))
        elif self._ending:
            fault, delay_ms, why = self._ending.fault, self._ending.delay_ms, self._ending.why
            calls.append(_widened(requeue(self.handle, self.attempt, self.worker, fault, delay_ms, why)))
        return calls

    def heard(self, reply: Reply) -> None:
        """Take Redis's answer to one of the calls."""
        if isinstance(reply, FinishReply):
            if reply.missing_after is None:
                self.over = True
                self.accepted = reply.accepted
                self.first_token_ms, self.finished_ms = reply.first_token_ms, reply.finished_ms
            else:
                self._log_ends_at(reply.missing_after)
        elif isinstance(reply, str) or reply == STALE:
            self.over = True
        elif reply == UPROOTED:
            self._break()
        else:
            self._log_ends_at(reply)

    @property
    def _root(self) -> int:
        """The number of the frame that this attempt begins after."""
        return self._after[1] if self._after else 0

    def _emit(self, frame: _Frame) -> Call[Reply]:
        who = self.handle, self.attempt, self.worker
        after = self._after if frame.seq == self._root + 1 else None
        # One for each chunk that speaks is what readers assume.
        count = 0 if frame.tokens == sum(map(speaks, frame.chunks)) else frame.tokens
        # What nobody reads along is told only now that it is given back; its first token came before.
        first = self.first_token_after_ms if isinstance(self._ending, GiveBack) else -1
        tokens = frame.ids or count
        call = emit(*who, frame.seq, frame.chunks, tokens=tokens, after=after, first_token_after_ms=first)
        return _widened(call)

    def _missing(self) -> list[_Frame]:
        """Frames that the log lacks."""
        if not self._frames:
            return []
        return list(islice(self._frames, max(0, self._logged + 1 - self._frames[0].seq), None))

    def _log_ends_at(self, seq: int) -> None:
        self._logged = min(max(seq, self._root), self._last)
        while self._frames and self._frames[0].seq <= self._logged - KEPT_FRAMES:
            self._frames.popleft()
        oldest = self._frames[0].seq if self._frames else self._last + 1
        if self._logged < oldest - 1:
            self._break()

    def _break(self) -> None:
        self.broken = True
        self._frames.clear()
        self._waiting = Gathered()
        self._last = self._logged
        self._ending = GiveBack(why="its token log lost frames that nobody has any more")


def _widened(call: Call[T]) -> Call[Reply]:
    """One type for the calls of one pipeline; each is answered by its own parser."""
    return cast("Call[Reply]", call)
