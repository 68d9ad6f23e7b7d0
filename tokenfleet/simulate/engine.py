"""A simulated worker: its engine step by step, and the reports that it would publish."""

from collections import OrderedDict, deque
from dataclasses import dataclass

from protocol.cost_model import PROFILES, Profile
from protocol.load_score import load_score
from protocol.messages import LoadReport
from scheduler.policy.order import Targets
from tokenfleet.simulate.job import Outcome, token_target_ms
from worker.engine.base import PREFIXES_KEPT
from worker.engine.sim.core import SimCore
from worker.engine.sim.records import Limits, SimRequest, Step

STEADY_TOKENS = 5
"""From so many tokens on a stream's time per token says something."""
_EMPTY = dict(LoadReport())


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What a worker is made of.

    Attributes:
        slowness: how long its steps take, over the profile's.
        joins_ms: when it begins to take jobs.
        dies_ms: when it is killed; None for never.
    """

    name: str
    profile: Profile = PROFILES["h100-8b"]
    slowness: float = 1.0
    kv_tokens: int = 430_000
    step_tokens: int = 8192
    sequences: int = 1024
    block_tokens: int = 16
    joins_ms: float = 0.0
    dies_ms: float | None = None


class SimWorker:
    """One engine, and what its worker knows of the jobs on it."""

    def __init__(self, spec: WorkerSpec, targets: Targets, now_ms: float = 0.0) -> None:
        self.spec, self._targets = spec, targets
        self.joined_ms, self.busy_ms = now_ms, 0.0
        self.died_ms: float | None = None
        limits = Limits(spec.kv_tokens, spec.sequences, spec.step_tokens, spec.block_tokens)
        self.core = SimCore(spec.profile, limits)
        self.jobs: dict[str, Outcome] = {}
        self._pending: dict[str, int] = {}
        self._streams: dict[str, tuple[Outcome, float]] = {}
        self._firsts: deque[tuple[int, int]] = deque(maxlen=32)
        self._known: OrderedDict[str, int] = OrderedDict()
        self.step: Step | None = None
        self.taken = 0
        self.hit_tokens = 0
        self.prompt_tokens = 0

    def start(self, outcome: Outcome, uncached_tokens: int, now_ms: float) -> None:
        """A job goes on the engine."""
        request = outcome.request
        outcome.started_ms, outcome.worker = now_ms, self.spec.name
        self.jobs[request.ref] = outcome
        self._pending[request.ref] = uncached_tokens
        self.taken = max(self.taken, outcome.attempt)
        blocks = request.blocks[: request.prompt_tokens // self.spec.block_tokens]
        self.core.add(SimRequest(request.ref, request.prompt_tokens, request.output_tokens, blocks))
        for name in request.prefix():
            block, _, _ = name.partition(":")
            self._known[name] = int(block)
            self._known.move_to_end(name)
        while len(self._known) > PREFIXES_KEPT:
            self._known.popitem(last=False)

    def abort(self, ref: str) -> None:
        """A job leaves without its end."""
        self.core.abort(ref)
        self._forget(ref)

    def begin_step(self, now_ms: float) -> float | None:
        """Begin the next step; when it ends, or None while there is nothing to do."""
        if not self.core.busy:
            self.step = None
            return None
        self.step = self.core.step(now_ms)
        for ref, cached in self.step.admitted.items():
            outcome = self.jobs[ref]
            if not outcome.tokens:
                outcome.cached_tokens = cached
                self.hit_tokens += cached
                self.prompt_tokens += outcome.request.prompt_tokens
        took_ms = self.step.duration_ms * self.spec.slowness
        self.busy_ms += took_ms
        return now_ms + took_ms

    def end_step(self, now_ms: float) -> list[Outcome]:
        """What the step did is there now; yields the jobs that ended."""
        step = self.step
        if step is None:
            return []
        jobs = self.jobs
        for ref in step.emitted:
            if ref in jobs:
                outcome = jobs[ref]
                outcome.tokens += 1
                if outcome.tokens == 1:
                    self._first(outcome, now_ms)
        ended = [self.jobs[ref] for ref in step.finished if ref in self.jobs]
        for outcome in ended:
            outcome.ended_ms = now_ms
            self._forget(outcome.request.ref)
        return ended

    def utilisation(self, now_ms: float) -> float:
        """Share of its life so far that it computed."""
        lived_ms = (now_ms if self.died_ms is None else self.died_ms) - self.joined_ms
        return min(1.0, self.busy_ms / lived_ms) if lived_ms > 0 else 0.0

    def report(self, now_ms: float) -> LoadReport:
        """What it publishes."""
        core, spec = self.core, self.spec
        kv = core.kv_used_tokens / spec.kv_tokens
        firsts, slow = tuple(self._firsts), self._slow_share(now_ms)
        self._firsts.clear()
        return _report(
            # vLLM reserves its memory up front: that term never moves.
            load_score=load_score(0.9, min(core.running, spec.sequences), spec.sequences, min(1.0, kv)),
            memory=0.9,
            running=core.running,
            waiting=core.waiting,
            capacity=spec.sequences,
            pending_prefill_tokens=sum(self._pending.values()),
            prefilling=len(self._pending),
            step_tokens=spec.step_tokens,
            slow_share=slow,
            firsts=firsts,
            kv_used_tokens=min(core.kv_used_tokens, spec.kv_tokens),
            kv_total_tokens=spec.kv_tokens,
            taken=self.taken,
        )

    def prefixes(self) -> frozenset[str]:
        """The producer's hashes whose blocks its cache holds."""
        cached = self.core.cached()
        return frozenset([name for name, block in self._known.items() if block in cached])

    def _first(self, outcome: Outcome, now_ms: float) -> None:
        if outcome.first_ms is None:
            outcome.first_ms = now_ms
            self._firsts.append((outcome.attempt, round(now_ms - (outcome.started_ms or now_ms))))
        self._pending.pop(outcome.request.ref, None)
        self._streams[outcome.request.ref] = outcome, token_target_ms(outcome, self._targets)

    def _slow_share(self, now_ms: float) -> float:
        """Of the streams with some tokens: those that are slower than their target."""
        steady = slow = 0
        for outcome, target_ms in self._streams.values():
            if outcome.tokens >= STEADY_TOKENS and outcome.first_ms is not None:
                steady += 1
                slow += now_ms - outcome.first_ms > target_ms * (outcome.tokens - 1)
        return slow / steady if steady else 0.0

    def _forget(self, ref: str) -> None:
        self.jobs.pop(ref, None)
        self._pending.pop(ref, None)
        self._streams.pop(ref, None)


def _report(**fields: float | tuple[tuple[int, int], ...]) -> LoadReport:
    """A report without the checks, and without looking for defaults: those take longer than all the rest."""
    return LoadReport.model_construct(**_EMPTY | fields)
