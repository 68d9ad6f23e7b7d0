"""An engine as a step machine on virtual time: no clock, no randomness, no I/O.

It schedules as vLLM V1 does: running sequences first, in order of admission, then waiting ones while the
step's token budget, the sequence limit and the KV cache allow; long prompts are cut into chunks; a sequence
that finds no KV room makes the youngest give up all it has, to be computed again later.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.cost_model import Profile
from worker.engine.sim.blocks import BlockHash, BlockPool
from worker.engine.sim.records import Limits, SimRequest, Step


@dataclass(slots=True)
class _Running:
    """A sequence: `computed` of its tokens are in the KV cache, and `missing` are still to be computed."""

    request: SimRequest
    missing: int
    computed: int = 0
    generated: int = 0
    shared: list[BlockHash] = field(default_factory=list)
    private: int = 0


Chunk = tuple[_Running, int]
"""A sequence and how many of its tokens a step computes."""


class SimCore:
    """One engine's scheduler and memory."""

    def __init__(self, profile: Profile, limits: Limits) -> None:
        """Begin idle and empty."""
        self.profile = profile
        self.limits = limits
        self._pool = BlockPool(limits.kv_tokens // limits.block_tokens)
        self._waiting: OrderedDict[str, _Running] = OrderedDict()
        self._running: dict[str, _Running] = {}

    @property
    def running(self) -> int:
        """Sequences that hold KV."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences that were not admitted yet, or were preempted."""
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._running or self._waiting)

    @property
    def kv_used_tokens(self) -> int:
        """KV that sequences hold, in whole blocks; idle cached blocks do not count."""
        return self._pool.used * self.limits.block_tokens

    def cached(self) -> set[BlockHash]:
        """The names of the blocks in the prefix cache."""
        return self._pool.names()

    def fits(self, request: SimRequest) -> bool:
        """Whether the request could ever run to its end here."""
        blocks = self._blocks(request.prompt_tokens + request.output_tokens)
        return request.prompt_tokens > 0 and blocks <= self._pool.capacity

    def add(self, request: SimRequest) -> None:
        """Queue one sequence.

        Raises:
            ValueError: its id is in use, or it does not fit.
        """
        if request.id in self._running or request.id in self._waiting:
            msg = f"request id {request.id} is in use"
            raise ValueError(msg)
        if not self.fits(request):
            msg = f"request {request.id} is larger than the KV cache, or empty"
            raise ValueError(msg)
        self._waiting[request.id] = _Running(request, request.prompt_tokens)

    def abort(self, request_id: str) -> bool:
        """Drop a sequence and free its KV; False when there is none."""
        if self._waiting.pop(request_id, None) is not None:
            return True
        seq = self._running.pop(request_id, None)
        if seq is not None:
            self._release(seq)
        return seq is not None

    def step(self, now_ms: float) -> Step:
        """Do one step that starts at `now_ms`; one that has nothing to do lasts 0 ms."""
        chunks, preempted = self._continue_running()
        admitted = {} if preempted else self._admit(chunks)
        duration_ms = self._duration_ms(chunks) if chunks else 0.0
        emitted, finished = self._advance(chunks)
        return Step(now_ms, duration_ms, emitted, finished, admitted, tuple(preempted))

    def _continue_running(self) -> tuple[list[Chunk], list[str]]:
        chunks: list[Chunk] = []
        preempted: list[str] = []
        budget, block = self.limits.step_tokens, self.limits.block_tokens
        for seq in list(self._running.values()):
            count = seq.missing
            if count > budget:
                count = budget
                if not count:
                    break
            # Most steps of a decoding sequence stay within its last block: nothing to reserve.
            if count > 1 or not seq.generated or seq.computed % block == 0:
                while seq.request.id in self._running and not self._reserve(seq, count):
                    preempted.append(self._preempt_youngest())
                if seq.request.id not in self._running:
                    continue
            elif preempted and seq.request.id not in self._running:
                continue
            chunks.append((seq, count))
            budget -= count
        return chunks, preempted

    def _preempt_youngest(self) -> str:
        request_id, seq = self._running.popitem()
        self._release(seq)
        self._waiting[request_id] = seq
        self._waiting.move_to_end(request_id, last=False)
        return request_id

    def _admit(self, chunks: list[Chunk]) -> dict[str, int]:
        admitted: dict[str, int] = {}
        budget = self.limits.step_tokens - sum(count for _, count in chunks)
        while self._waiting and budget and len(self._running) < self.limits.sequences:
            request_id, seq = next(iter(self._waiting.items()))
            # At least one token must be computed, or there is nothing to sample from.
            reusable = (seq.missing - 1) // self.limits.block_tokens
            seq.shared = self._pool.share_prefix(seq.request.blocks[:reusable])
            seq.computed = len(seq.shared) * self.limits.block_tokens
            seq.missing -= seq.computed
            count = min(seq.missing, budget)
            if not self._reserve(seq, count):
                self._release(seq)
                break
            admitted[request_id] = seq.computed
            self._running[request_id] = self._waiting.pop(request_id)
            chunks.append((seq, count))
            budget -= count
        return admitted

    def _reserve(self, seq: _Running, count: int) -> bool:
        """Make room for `count` more tokens, and name the blocks that they fill."""
        after = seq.computed + count
        needed = self._blocks(after) - len(seq.shared) - seq.private
        if needed > 0:
            if not self._pool.take(needed):
                return False
            seq.private += needed
        full = min(after // self.limits.block_tokens, len(seq.request.blocks))
        for block in seq.request.blocks[len(seq.shared) : full]:
            # Past a block that another holds by this name the chain stays private: `shared` is one prefix.
            if not self._pool.publish(block):
                break
            seq.private -= 1
            seq.shared.append(block)
        return True

    def _duration_ms(self, chunks: Sequence[Chunk]) -> float:
        decode_kv, pairs, tokens = 0, 0.0, 0
        for seq, count in chunks:
            tokens += count
            if seq.missing == 1 and seq.generated:
                decode_kv += seq.computed
            else:
                pairs += count * (seq.computed + count / 2)
        return self.profile.step_ms(tokens, decode_kv, pairs)

    def _advance(self, chunks: Sequence[Chunk]) -> tuple[dict[str, int], tuple[str, ...]]:
        emitted: dict[str, int] = {}
        finished: list[str] = []
        for seq, count in chunks:
            request = seq.request
            seq.computed += count
            seq.missing -= count
            if seq.missing:
                continue
            if request.output_tokens:
                seq.generated += 1
                seq.missing = 1
                emitted[request.id] = 1
            if seq.generated >= request.output_tokens:
                finished.append(request.id)
                del self._running[request.id]
                self._release(seq)
        return emitted, tuple(finished)

    def _release(self, seq: _Running) -> None:
        self._pool.release(seq.shared, seq.private)
        seq.missing += seq.computed
        seq.shared, seq.private, seq.computed = [], 0, 0

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_tokens)
