"""What a scheduler tells Prometheus: of the shards that it leads, and of what it did itself."""

from collections import Counter as Count
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from protocol.handle import Shard
from protocol.states import Priority
from scheduler.led import SHARD, Led, LedShards, Look
from scheduler.policy.decision import Decision, ParkReason
from scheduler.policy.view import JobView
from scheduler.policy.window import Reason
from scheduler.read import Snapshot

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
    """

    def __init__(self, registry: CollectorRegistry, policy: str) -> None:
        self._shards: dict[Shard, ShardMetrics] = {}
        self.led: dict[Shard, Led] = {}
        name = "tokenfleet_scheduler{}".format
        Gauge(name("_info"), "1; its label says how this scheduler decides.", ["policy"], registry=registry).labels(
            policy
        ).set(1)
        self.leader = Gauge(
            name("_leader"), "1 while this scheduler leads the shard, else 0.", SHARD, registry=registry
        )
        self.leads = Counter(name("_leads"), "How often it took the lead.", SHARD, registry=registry)
        self.steps = Histogram(
            name("_step_seconds"),
            "What a round costs, by its step; each `decide` is one decision.",
            (*SHARD, "step"),
            buckets=STEP_S,
            registry=registry,
        )
        self.failures = Counter(name("_failed_rounds"), "Rounds that broke off.", SHARD, registry=registry)
        by_priority = (*SHARD, "priority")
        self.assigned = Counter(name("_assignments"), "Jobs given to workers.", by_priority, registry=registry)
        self.retried = Counter(name("_retries"), "Of those: jobs that had run before.", by_priority, registry=registry)
        self.waits = Histogram(
            name("_wait_seconds"),
            "From a job's submission to its assignment; jobs that had run before are left out.",
            by_priority,
            buckets=WAIT_S,
            registry=registry,
        )
        self.refused = Counter(name("_refusals"), "Jobs refused as too late.", by_priority, registry=registry)
        self.parked = Counter(name("_parked"), "Jobs put off, by why.", (*SHARD, "reason"), registry=registry)
        closed = (*by_priority, "reason")
        self.closed = Counter(name("_windows_closed"), "Batch windows that closed.", closed, registry=registry)
        self.windows = Histogram(
            name("_window_jobs"), "Jobs that went as a window closed.", by_priority, buckets=JOBS, registry=registry
        )
        registry.register(LedShards(self.led))

    def of(self, shard: Shard) -> "ShardMetrics":
        """Those of one shard; all its series are there from then on, at zero."""
        if shard not in self._shards:
            self._shards[shard] = ShardMetrics(self, shard)
        return self._shards[shard]


class ShardMetrics:
    """What happens in one shard."""

    def __init__(self, all_: Metrics, shard: Shard) -> None:
        here = shard.pool, str(shard.number)
        self._leader, self._leads = all_.leader.labels(*here), all_.leads.labels(*here)
        self._failures = all_.failures.labels(*here)
        self._steps = [all_.steps.labels(*here, step) for step in STEPS]
        each = {priority: (*here, priority) for priority in Priority}
        self._assigned = {priority: all_.assigned.labels(*where) for priority, where in each.items()}
        self._retried = {priority: all_.retried.labels(*where) for priority, where in each.items()}
        self._waits = {priority: all_.waits.labels(*where) for priority, where in each.items()}
        self._refused = {priority: all_.refused.labels(*where) for priority, where in each.items()}
        self._windows = {priority: all_.windows.labels(*where) for priority, where in each.items()}
        self._parked = {reason: all_.parked.labels(*here, reason) for reason in ParkReason}
        self._closed = {(p, reason): all_.closed.labels(*here, p, reason) for p in Priority for reason in Reason}
        self._shard, self._led = shard, all_.led

    def lead_taken(self) -> None:
        """This scheduler leads from now on."""
        self._leader.set(1)
        self._leads.inc()
        self._led[self._shard] = Led()

    def lead_lost(self) -> None:
        """Another leads: what the shard holds is its to tell."""
        self._leader.set(0)
        self._led.pop(self._shard, None)

    def looked(self, look: Look) -> None:
        """The leader kept house."""
        self._led[self._shard].look = look

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
        going = Count(given.priority for given in decision.assignments)
        for priority, reason in decision.closed.items():
            if going[priority]:
                self._closed[priority, reason].inc()
                self._windows[priority].observe(going[priority])

    def assigned(self, job: JobView, now_ms: float) -> None:
        """A worker has the job."""
        self._assigned[job.priority].inc()
        if job.begun:
            self._retried[job.priority].inc()
        else:
            self._waits[job.priority].observe(max(0.0, now_ms - job.submitted_ms) / 1000)

    def refused(self, job: JobView) -> None:
        """The job was ended: it can't meet its target."""
        self._refused[job.priority].inc()
