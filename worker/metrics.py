"""What a worker tells Prometheus: its jobs as they start, speak and end, and what it last reported of itself."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from protocol.handle import Shard
from protocol.messages import LoadReport
from protocol.states import Priority, WorkerState
from worker.verdict import Drop, Finish, Verdict

WAIT_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600)
"""Bounds of what may wait in a queue or be a long answer."""
TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 10)
"""Bounds of what lies between two tokens."""
ENDS = ("completed", "failed", "cancelled", "given_back", "try", "strike", "dropped")
WORKER = ("pool", "shard", "worker")
_BY_PRIORITY = (*WORKER, "priority")


class Metrics:
    """One worker's metrics, over all its lives.

    Args:
        registry: where they are registered.
        shard: that it works for.
        label: what people call it.
    """

    def __init__(self, registry: CollectorRegistry, shard: Shard, label: str) -> None:
        self._here, self._registry = (shard.pool, str(shard.number), label), registry
        self._queue = self._timed("queue", "From a job's submission to its start here.", WAIT_S)
        self._first = self._timed(
            "first_token",
            "From a job's submission to its first token; not of one that goes on where another stopped.",
            WAIT_S,
        )
        self._engine_first = self._timed(
            "engine_first_token", "From an attempt's start here to its first token.", WAIT_S
        )
        self._between = _Between(self._here)
        registry.register(self._between)
        self._whole = self._timed("job", "From a job's submission to its end, of those completed.", WAIT_S)
        self._engine = self._timed("engine", "From an attempt's start here to its end, of those completed.", WAIT_S)
        self._prompt_tokens = self._counted("prompt_tokens", "Prompt tokens of ended jobs, as the engine counted them.")
        self._output_tokens = self._counted("output_tokens", "Tokens of their answers.")
        ends = Counter(
            "tokenfleet_worker_attempts", "Attempts by how they ended.", (*_BY_PRIORITY, "end"), registry=registry
        )
        self._ends = {(p, end): ends.labels(*self._here, p, end) for p in Priority for end in ENDS}
        lost = Counter(
            "tokenfleet_worker_leases_lost", "Lives that ended without its will.", (*WORKER, "why"), registry=registry
        )
        self._lost = {why: lost.labels(*self._here, why) for why in ("reclaimed", "lease_over")}
        self._last = _LastReport(self._here)
        registry.register(self._last)

    def started(self, priority: Priority, waited_s: float | None) -> None:
        """An attempt begins; `waited_s` since its job's submission, None where nobody told."""
        if waited_s is not None:
            self._queue[priority].observe(waited_s)

    def first_token(self, priority: Priority, waited_s: float | None, engine_s: float) -> None:
        """An attempt speaks, `engine_s` after its start; `waited_s` is None too where an earlier one has spoken."""
        self._engine_first[priority].observe(engine_s)
        if waited_s is not None:
            self._first[priority].observe(waited_s + engine_s)

    def next_token(self, priority: Priority, after_s: float) -> None:
        """It goes on, so long after its last piece."""
        gaps = self._between.gaps[priority]
        gaps.counts[bisect_left(TOKEN_S, after_s)] += 1
        gaps.sum_s += after_s

    def ended(self, priority: Priority, verdict: Verdict, waited_s: float | None, engine_s: float) -> None:
        """The engine is done with an attempt, `engine_s` after its start."""
        end = _end_of(verdict)
        self._ends[priority, end].inc()
        if not isinstance(verdict, Finish):
            return
        self._count_tokens(priority, verdict)
        if end == "completed":
            self._engine[priority].observe(engine_s)
            if waited_s is not None:
                self._whole[priority].observe(waited_s + engine_s)

    def lease_lost(self, why: str) -> None:
        """A life ended: `reclaimed` by the scheduler, or `lease_over` by our own clock."""
        self._lost[why].inc()

    def reported(self, state: WorkerState, report: LoadReport, restarts: int) -> None:
        """The worker has told Redis how it is; its engine was started anew so often."""
        self._last.report = Report(state, report, restarts)

    def _count_tokens(self, priority: Priority, verdict: Finish) -> None:
        usage = verdict.outcome.usage
        for name, counter in (("prompt_tokens", self._prompt_tokens), ("completion_tokens", self._output_tokens)):
            count = usage.get(name)
            # An engine may say anything.
            if isinstance(count, int) and count > 0:
                counter[priority].inc(count)

    def _timed(self, name: str, meaning: str, bounds: tuple[float, ...]) -> dict[Priority, Histogram]:
        metric = Histogram(
            f"tokenfleet_worker_{name}_seconds", meaning, _BY_PRIORITY, buckets=bounds, registry=self._registry
        )
        return {priority: metric.labels(*self._here, priority) for priority in Priority}

    def _counted(self, name: str, meaning: str) -> dict[Priority, Counter]:
        metric = Counter(f"tokenfleet_worker_{name}", meaning, _BY_PRIORITY, registry=self._registry)
        return {priority: metric.labels(*self._here, priority) for priority in Priority}


@dataclass(slots=True)
class _Gaps:
    """How many lie below each bound of `TOKEN_S` and above the one before; the last count is of those above all."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(TOKEN_S) + 1))
    sum_s: float = 0.0


class _Between(Collector):
    """What lies between tokens. Counted for each of them, so by a quarter of what a `Histogram` takes."""

    def __init__(self, here: tuple[str, ...]) -> None:
        self._here = here
        self.gaps = {priority: _Gaps() for priority in Priority}

    def collect(self) -> Iterator[Metric]:
        """One histogram."""
        meaning = "Between two pieces of a stream, mostly tokens."
        metric = HistogramMetricFamily("tokenfleet_worker_between_tokens_seconds", meaning, labels=_BY_PRIORITY)
        for priority, gaps in self.gaps.items():
            bounds = map(floatToGoString, (*TOKEN_S, math.inf))
            metric.add_metric(
                (*self._here, priority), list(zip(bounds, accumulate(gaps.counts), strict=True)), gaps.sum_s
            )
        yield metric


def _end_of(verdict: Verdict) -> str:
    if isinstance(verdict, Drop):
        return "dropped"
    if isinstance(verdict, Finish):
        return str(verdict.outcome.state)
    return "given_back" if verdict.fault == "none" else verdict.fault


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker told last."""

    state: WorkerState
    load: LoadReport
    restarts: int


_GAUGES: tuple[tuple[str, str, Callable[[LoadReport], float]], ...] = (
    ("load_score", "0.4·memory + 0.3·running/capacity + 0.3·KV: full at 0.9.", lambda load: load.load_score),
    ("memory_ratio", "Device memory in use; without a device the engine's resident size.", lambda load: load.memory),
    ("kv_ratio", "KV cache in use.", lambda load: load.kv),
    ("kv_used_tokens", "Tokens in the KV cache.", lambda load: load.kv_used_tokens),
    (
        "kv_capacity_tokens",
        "Tokens that the KV cache holds; 0 where the engine does not tell.",
        lambda load: load.kv_total_tokens,
    ),
    ("running_requests", "Requests that the engine runs.", lambda load: load.running),
    ("waiting_requests", "Requests that wait in the engine.", lambda load: load.waiting),
    ("capacity_requests", "Requests that the engine runs at once.", lambda load: load.capacity),
    ("prefilling_requests", "Requests without a first token.", lambda load: load.prefilling),
    (
        "pending_prefill_tokens",
        "Prompt tokens that the engine has still to compute.",
        lambda load: load.pending_prefill_tokens,
    ),
    ("slow_streams_ratio", "Of the streams: those slower than the target for a token.", lambda load: load.slow_share),
)
_COUNTERS: tuple[tuple[str, str, Callable[[LoadReport], float]], ...] = (
    ("prompt_tokens", "Prompt tokens that the engine took since it came up.", lambda load: load.prompt_tokens),
    ("generated_tokens", "Tokens that it generated since then.", lambda load: load.generated_tokens),
    ("prefix_query_tokens", "Prompt tokens looked up in its prefix cache.", lambda load: load.prefix_query_tokens),
    ("prefix_hit_tokens", "Of those: found there.", lambda load: load.prefix_hit_tokens),
    ("preemptions", "Requests that it put back for want of KV cache.", lambda load: load.preemptions),
)


class _LastReport(Collector):
    """Read when Prometheus asks."""

    def __init__(self, here: tuple[str, ...]) -> None:
        self._here = here
        self.report: Report | None = None

    def collect(self) -> Iterator[Metric]:
        """Nothing before the first report."""
        if not (report := self.report):
            return
        for name, meaning, value in _GAUGES:
            gauge = GaugeMetricFamily(f"tokenfleet_worker_{name}", meaning, labels=WORKER)
            gauge.add_metric(self._here, value(report.load))
            yield gauge
        for name, meaning, value in _COUNTERS:
            counter = CounterMetricFamily(f"tokenfleet_engine_{name}", meaning, labels=WORKER)
            counter.add_metric(self._here, value(report.load))
            yield counter
        restarts = CounterMetricFamily(
            "tokenfleet_engine_restarts", "How often the engine came up again.", labels=WORKER
        )
        restarts.add_metric(self._here, report.restarts)
        yield restarts
        yield from self._states(report)

    def _states(self, report: Report) -> Iterator[Metric]:
        labels = (*WORKER, "state")
        now = GaugeMetricFamily("tokenfleet_worker_state", "1 for the state that the worker is in.", labels=labels)
        spent = CounterMetricFamily(
            "tokenfleet_worker_state_seconds", "How long its process was in each state.", labels=labels
        )
        for state in get_args(WorkerState):
            now.add_metric((*self._here, state), state == report.state)
            spent.add_metric((*self._here, state), report.load.state_s.get(state, 0.0))
        yield now
        yield spent
