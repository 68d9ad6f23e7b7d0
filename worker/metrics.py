"""What a worker tells Prometheus: its jobs as they start, speak and end, and what it last reported of itself."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import get_args

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from protocol.handle import Shard
from protocol.messages import LoadReport
from protocol.states import Priority, State, WorkerState
from telemetry.instruments import Bars, Count, Counters, Histograms
from worker.verdict import Drop, Finish, GiveBack, Verdict

WAIT_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600)
"""Bounds of what may wait in a queue or be a long answer."""
TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 10)
"""Bounds of what lies between two tokens."""
FOLD_S = 1.0
"""Between two looks at what is fresh; a busy worker reports many times in it."""
ENDS = ("completed", "failed", "cancelled", "given_back", "try", "strike", "dropped")
WORKER = ("pool", "shard", "worker")
_BY_PRIORITY = (*WORKER, "priority")


@dataclass(frozen=True, slots=True)
class _Own:
    """The series of one priority."""

    queue: Bars
    first: Bars
    engine_first: Bars
    between: Bars
    whole: Bars
    engine: Bars
    prompt_tokens: Count
    output_tokens: Count
    ends: dict[str, Count]


class Metrics:
    """One worker's metrics, over all its lives.

    Args:
        registry: where they are registered.
        shard: that it works for.
        label: what people call it.
    """

    def __init__(self, registry: CollectorRegistry, shard: Shard, label: str) -> None:
        self._registry = registry
        here = shard.pool, str(shard.number), label
        self._waits = [self._timed(*about) for about in _TIMED]
        queue, first, engine_first, between, whole, engine = self._waits
        prompt_tokens, output_tokens = (self._counted(*about) for about in _COUNTED)
        ends = self._counted("attempts", "Attempts by how they ended.", "end")
        self._by = {
            p: _Own(
                queue.of(*here, p),
                first.of(*here, p),
                engine_first.of(*here, p),
                between.of(*here, p),
                whole.of(*here, p),
                engine.of(*here, p),
                prompt_tokens.of(*here, p),
                output_tokens.of(*here, p),
                {end: ends.of(*here, p, end) for end in ENDS},
            )
            for p in Priority
        }
        lost = Counters(
            "tokenfleet_worker_leases_lost", "Lives that ended without its will.", (*WORKER, "why"), registry
        )
        self._lost = {why: lost.of(*here, why) for why in ("reclaimed", "lease_over")}
        self._last, self._next_fold_s = _LastReport(here), 0.0
        registry.register(self._last)

    def started(self, priority: Priority, waited_s: float | None) -> None:
        """An attempt begins; `waited_s` since its job could run, None where nobody told."""
        if waited_s is not None:
            self._by[priority].queue.observe(waited_s)

    def first_token(self, priority: Priority, waited_s: float | None, engine_s: float) -> Bars:
        """An attempt speaks, `engine_s` after its start; `waited_s` is None too where an earlier one has spoken.

        Returns what counts the seconds between its next tokens.
        """
        own = self._by[priority]
        own.engine_first.observe(engine_s)
        if waited_s is not None:
            own.first.observe(waited_s + engine_s)
        return own.between

    def ended(self, priority: Priority, verdict: Verdict, waited_s: float | None, engine_s: float) -> None:
        """The engine is done with an attempt, `engine_s` after its start."""
        own = self._by[priority]
        if not isinstance(verdict, Finish):
            own.ends[_end_of(verdict)].inc()
            return
        outcome = verdict.outcome
        own.ends[outcome.state].inc()
        usage = outcome.usage
        own.prompt_tokens.value += _tokens(usage.get("prompt_tokens"))
        own.output_tokens.value += _tokens(usage.get("completion_tokens"))
        if outcome.state is State.COMPLETED:
            own.engine.observe(engine_s)
            if waited_s is not None:
                own.whole.observe(waited_s + engine_s)

    def lease_lost(self, why: str) -> None:
        """A life ended: `reclaimed` by the scheduler, or `lease_over` by our own clock."""
        self._lost[why].inc()

    def reported(self, state: WorkerState, report: LoadReport, restarts: int) -> None:
        """The worker has told Redis how it is; its engine was started anew so often."""
        self._last.report = Report(state, report, restarts)
        if (now_s := monotonic()) >= self._next_fold_s:
            self._next_fold_s = now_s + FOLD_S
            for waits in self._waits:
                waits.fold()

    def _timed(self, name: str, meaning: str, bounds: tuple[float, ...]) -> Histograms:
        return Histograms(f"tokenfleet_worker_{name}_seconds", meaning, _BY_PRIORITY, bounds, self._registry)

    def _counted(self, name: str, meaning: str, *labels: str) -> Counters:
        return Counters(f"tokenfleet_worker_{name}", meaning, (*_BY_PRIORITY, *labels), self._registry)


_TIMED = (
    ("queue", "From a job's submission, or the end of its delay, to its start here.", WAIT_S),
    (
        "first_token",
        "From a job's submission, or the end of its delay, to its first token; not of one that goes on from another's.",
        WAIT_S,
    ),
    ("engine_first_token", "From an attempt's start here to its first token.", WAIT_S),
    ("between_tokens", "Between two pieces of a stream, mostly tokens.", TOKEN_S),
    ("job", "From a job's submission, or the end of its delay, to its end, of those completed.", WAIT_S),
    ("engine", "From an attempt's start here to its end, of those completed.", WAIT_S),
)
_COUNTED = (
    ("prompt_tokens", "Prompt tokens of ended jobs, as the engine counted them."),
    ("output_tokens", "Tokens of their answers."),
)


def _end_of(verdict: GiveBack | Drop) -> str:
    if isinstance(verdict, Drop):
        return "dropped"
    return "given_back" if verdict.fault == "none" else verdict.fault


def _tokens(told: object) -> int:
    """An engine may say anything."""
    return told if isinstance(told, int) and told > 0 else 0


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
    (
        "refusing",
        "1 while the engine answers 429 or 503, and until it has taken a request.",
        lambda load: load.refusing,
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
