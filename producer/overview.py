"""One moment of a fleet for live views: the terminal's and the page's. Pure data; `OverviewReader` reads it.

Never a request and never an answer; of jobs their names alone, and `seen_by` leaves another tenant's out.
"""

from dataclasses import dataclass, replace
from typing import Self

from producer.scope import Scope
from protocol.batches import BatchStatus
from protocol.handle import Handle, Shard
from protocol.states import Priority, WorkerState
from protocol.wire import JsonObject


@dataclass(frozen=True, slots=True)
class LaneView:
    """One lane of a shard."""

    priority: Priority
    depth: int
    oldest_wait_ms: int
    """Since its submission, or the end of its delay, of those at the lane's head; 0 for an empty lane."""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker: its load score and the parts of it, and what it holds."""

    id: str
    label: str
    state: WorkerState
    """As it published it; `lost` once its lease is over."""
    models: tuple[str, ...]
    slots: int
    held: int
    """Jobs, by Redis's count."""
    load_score: float
    """0.4·memory + 0.3·min(running/capacity, 1) + 0.3·KV."""
    memory: float
    """Share of the device's memory; without a device, the engine's resident size over its limit."""
    running: int
    waiting: int
    """Requests on the engine."""
    capacity: int
    """Requests that the engine runs at once."""
    kv: float | None
    """Share of the KV cache in use; None where the engine does not tell."""
    device_utilisation: float | None
    device_temperature_c: float | None
    report_age_ms: int
    tokens_per_s: float | None
    """Output tokens of the last seconds; None before a second report was seen."""
    jobs: tuple[Handle, ...]
    """Some of the jobs that it holds, the oldest assignment first; `held` counts them all."""

    def to_json(self) -> JsonObject:
        """The fields by their names, `jobs` as handles."""
        return {
            "id": self.id,
            "label": self.label,
            "state": self.state,
            "models": list(self.models),
            "slots": self.slots,
            "held": self.held,
            "load_score": round(self.load_score, 4),
            "memory": round(self.memory, 4),
            "running": self.running,
            "waiting": self.waiting,
            "capacity": self.capacity,
            "kv": None if self.kv is None else round(self.kv, 4),
            "device_utilisation": self.device_utilisation,
            "device_temperature_c": self.device_temperature_c,
            "report_age_ms": self.report_age_ms,
            "tokens_per_s": None if self.tokens_per_s is None else round(self.tokens_per_s, 1),
            "jobs": [str(job) for job in self.jobs],
        }


@dataclass(frozen=True, slots=True)
class ShardView:
    """One shard of a pool."""

    shard: Shard
    models: tuple[str, ...]
    led: bool
    """Whether a scheduler leads it: nothing is assigned while none does."""
    policy: str
    """The leader's; empty while none leads."""
    workers_wanted: int | None
    """So many active workers would meet the targets with ease; None while nobody says."""
    lanes: tuple[LaneView, ...]
    due: int
    """Delayed jobs and retries."""
    dead: int
    """Jobs that were set aside."""
    workers: tuple[WorkerView, ...]

    def to_json(self) -> JsonObject:
        """The fields by their names, `lanes` by priority."""
        lanes = {
            str(lane.priority): {"depth": lane.depth, "oldest_wait_ms": lane.oldest_wait_ms} for lane in self.lanes
        }
        return {
            "shard": str(self.shard),
            "models": list(self.models),
            "led": self.led,
            "policy": self.policy,
            "workers_wanted": self.workers_wanted,
            "lanes": lanes,
            "due": self.due,
            "dead": self.dead,
            "workers": [worker.to_json() for worker in self.workers],
        }


@dataclass(frozen=True, slots=True)
class BatchView:
    """A batch that runs, or that has ended within the last minute."""

    tenant: str
    id: str
    status: BatchStatus
    model: str
    rows: int
    """0 while nobody has counted them."""
    completed: int
    failed: int
    left_s: float | None
    """When all rows are done at this pace; None while nobody can know."""
    ended_ms: int
    """In Redis's time; 0 while it runs."""

    def to_json(self) -> JsonObject:
        """The fields by their names."""
        return {
            "tenant": self.tenant,
            "id": self.id,
            "status": str(self.status),
            "model": self.model,
            "rows": self.rows,
            "completed": self.completed,
            "failed": self.failed,
            "left_s": None if self.left_s is None else round(self.left_s, 1),
            "ended_ms": self.ended_ms,
        }


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """How long attempts took from their start on the engine to their first token, in the last minute."""

    count: int
    p50_ms: int | None
    p95_ms: int | None
    """None when there were none."""

    def to_json(self) -> JsonObject:
        """The fields by their names."""
        return {"count": self.count, "p50_ms": self.p50_ms, "p95_ms": self.p95_ms}


@dataclass(frozen=True, slots=True)
class Overview:
    """All shards at one moment of Redis's clock."""

    now_ms: int
    shards: tuple[ShardView, ...]
    first_tokens: FirstTokens
    batches: tuple[BatchView, ...]

    @property
    def tokens_per_s(self) -> float | None:
        """Output tokens of all workers; None before a second report of any was seen."""
        speeds = [worker.tokens_per_s for shard in self.shards for worker in shard.workers]
        known = [speed for speed in speeds if speed is not None]
        return sum(known) if known else None

    @property
    def dead(self) -> int:
        """Jobs that were set aside, in all shards."""
        return sum(shard.dead for shard in self.shards)

    @property
    def unled(self) -> tuple[Shard, ...]:
        """Shards that no scheduler leads."""
        return tuple(shard.shard for shard in self.shards if not shard.led)

    def seen_by(self, scope: Scope) -> Self:
        """The same without other tenants' jobs and batches; what all share stays: lanes, workers, counts."""
        if not scope.only:
            return self
        shards = tuple(_shard_seen_by(shard, scope) for shard in self.shards)
        return replace(self, shards=shards, batches=tuple(b for b in self.batches if b.tenant == scope.only))

    def to_json(self) -> JsonObject:
        """Times in ms of Redis's clock, tokens a second, shares in [0, 1]."""
        speed = self.tokens_per_s
        return {
            "now_ms": self.now_ms,
            "tokens_per_s": None if speed is None else round(speed, 1),
            "first_tokens": self.first_tokens.to_json(),
            "dead": self.dead,
            "shards": [shard.to_json() for shard in self.shards],
            "batches": [batch.to_json() for batch in self.batches],
        }


def _shard_seen_by(shard: ShardView, scope: Scope) -> ShardView:
    workers = tuple(replace(worker, jobs=tuple(filter(scope.holds, worker.jobs))) for worker in shard.workers)
    return replace(shard, workers=workers)
