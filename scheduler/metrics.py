"""What a scheduler tells Prometheus: of the shards that it leads, and of what it did itself."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Gauge

from protocol.handle import Shard
from protocol.states import Priority
from scheduler.led import SHARD, Led, LedShards, Look
from scheduler.policy.decision import Decision, ParkReason
from scheduler.policy.view import JobView
from scheduler.policy.window import Reason
from scheduler.read import Snapshot
from telemetry.instruments import Bars, Count, Counters, Histograms

WAIT_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600)
STEP_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
JOBS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""The histograms' bounds."""
STEPS = ("read", "decide", "apply")


class Metrics:
    """One scheduler's metrics.

    Args:
        registry: where they are registered.
        policy: the name of the one that decides.
        targets_s: how long a job of each priority should wait at most.
    """

    def __init__(self, registry: CollectorRegistry, policy: str, targets_s: Mapping[Priority, float]) -> None:
        self._shards: dict[Shard, ShardMetrics] = {}
        self.led: dict[Shard, Led] = {}
        name, own = "tokenfleet_scheduler_{}".format, registry
        info = Gauge(name("info"), "1; its label says how this scheduler decides.", ["policy"], registry=own)
        info.labels(policy).set(1)
        targets = Gauge(
            "tokenfleet_lane_target_seconds", "How long a job should wait at most.", ["priority"], registry=own
        )
        for priority, target_s in targets_s.items():
            targets.labels(priority).set(target_s)
        self.leader = Gauge(name("leader"), "1 while this scheduler leads the shard, else 0.", SHARD, registry=own)
        self.leads = Counters(name("leads"), "How often it took the lead.", SHARD, own)
        self.steps = Histograms(
            name("step_seconds"),
            "What a round costs, by its step; each `decide` is one decision.",
            (*SHARD, "step"),
            STEP_S,
            own,
        )
        self.failures = Counters(name("failed_rounds"), "Rounds that broke off.", SHARD, own)
        by_priority = (*SHARD, "priority")
        self.assigned = Counters(name("assignments"), "Jobs given to workers.", by_priority, own)
        self.retried = Counters(name("retries"), "Of those: jobs that had run before.", by_priority, own)
        self.waits = Histograms(
            name("wait_seconds"),
            "From a job's submission, or the end of its delay, to its assignment; jobs that had run before left out.",
            by_priority,
            WAIT_S,
            own,
        )
        self.refused = Counters(name("refusals"), "Jobs refused as too late.", by_priority, own)
        self.parked = Counters(name("parked"), "Jobs put off, by why.", (*SHARD, "reason"), own)
        closed = (*by_priority, "reason")
        self.closed = Counters(name("windows_closed"), "Batch windows that closed.", closed, own)
        self.windows = Histograms(name("window_jobs"), "Jobs that went as a window closed.", by_priority, JOBS, own)
        self._by_shard: tuple[Counters | Histograms, ...] = (
            *(self.leads, self.steps, self.failures, self.assigned, self.retried, self.waits, self.refused),
            *(self.parked, self.closed, self.windows),
        )
        registry.register(LedShards(self.led))

    def of(self, shard: Shard) -> "ShardMetrics":
        """Those of one shard; all its series are there from then on, at zero."""
        if shard not in self._shards:
            self._shards[shard] = ShardMetrics(self, shard)
        return self._shards[shard]

    def forget(self, shard: Shard) -> None:
        """It is gone, and so are its series."""
        here = shard.pool, str(shard.number)
        if self._shards.pop(shard, None):
            self.leader.remove(*here)
            for instrument in self._by_shard:
                instrument.forget(*here)


@dataclass(frozen=True, slots=True)
class _Own:
    """The series of one priority."""

    assigned: Count
    retried: Count
    waits: Bars
    refused: Count
    windows: Bars
    closed: Mapping[Reason, Count]


class ShardMetrics:
    """What happens in one shard."""

    def __init__(self, all_: Metrics, shard: Shard) -> None:
        here = shard.pool, str(shard.number)
        all_.leader.labels(*here).set_function(self._leads_now)
        self._leads = all_.leads.of(*here)
        self._failures = all_.failures.of(*here)
        self._steps = [all_.steps.of(*here, step) for step in STEPS]
        self._parked = {reason: all_.parked.of(*here, reason) for reason in ParkReason}
        self._by = {
            p: _Own(
                all_.assigned.of(*here, p),
                all_.retried.of(*here, p),
                all_.waits.of(*here, p),
                all_.refused.of(*here, p),
                all_.windows.of(*here, p),
                {reason: all_.closed.of(*here, p, reason) for reason in Reason},
            )
            for p in Priority
        }
        self._histograms = all_.steps, all_.waits, all_.windows
        self._shard, self._led = shard, all_.led

    def lead_taken(self) -> None:
        """This scheduler leads from now on."""
        self._leads.inc()
        self._led[self._shard] = Led()

    def lead_kept(self) -> None:
        """Redis has heard that it goes on leading."""
        self._led[self._shard].kept()

    def lead_lost(self) -> None:
        """Another leads: what the shard holds is its to tell."""
        self._led.pop(self._shard, None)

    def looked(self, look: Look) -> None:
        """The leader kept house."""
        self._led[self._shard].looked(look)
        for histogram in self._histograms:
            histogram.fold()

    def failed(self) -> None:
        """A round broke off."""
        self._failures.inc()

    def round(self, snapshot: Snapshot, decision: Decision, took_s: Sequence[float]) -> None:
        """A round is over; `took_s` is the time of each of `STEPS`."""
        self._led[self._shard].saw(snapshot)
        for step, seconds in zip(self._steps, took_s, strict=True):
            step.observe(seconds)
        for item in decision.park:
            self._parked[item.reason].inc()
        if not decision.closed:
            return
        gone = [given.priority for given in decision.assignments]
        for priority, reason in decision.closed.items():
            if going := gone.count(priority):
                own = self._by[priority]
                own.closed[reason].inc()
                own.windows.observe(going)

    def assigned(self, jobs: Iterable[JobView], now_ms: float) -> None:
        """Workers have the jobs."""
        for job in jobs:
            own = self._by[job.priority]
            own.assigned.value += 1
            if job.begun:
                own.retried.inc()
            else:
                own.waits.observe(max(0.0, now_ms - job.submitted_ms) / 1000)

    def refused(self, job: JobView) -> None:
        """The job was ended: it can't meet its target."""
        self._by[job.priority].refused.inc()

    def _leads_now(self) -> float:
        led = self._led.get(self._shard)
        return float(led is not None and led.leads)
