"""Reads an `Overview` in three round trips, however many shards and workers there are."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from redis.asyncio import Redis

from producer.batch.pace import Pace
from producer.overview import BatchView, LaneView, Overview, ShardView, WorkerView
from producer.speeds import Speeds
from producer.status import HEAD, OUTLOOK_KEPT_MS, shards_of
from producer.workers import state_of
from protocol import batch_reads, overview_reads, reads, watch
from protocol.batches import BatchName, BatchRecord, BatchStatus
from protocol.call import Call, run_all
from protocol.errors import FleetError, Unreadable, WrongType
from protocol.handle import Handle, Shard
from protocol.messages import WorkerRecord
from protocol.outlook import Outlook, published
from protocol.states import Priority

JOBS_SHOWN = 32
"""So many entries of each inbox are read."""
BATCHES_SHOWN = 50
"""Of all tenants."""
ENDED_KEPT_MS = 60_000
"""A batch that was seen running is shown for so long after its end."""
_PER_SHARD = 5 + 2 * len(Priority)


@dataclass(frozen=True, slots=True)
class _Found:
    """What the second trip found of a shard."""

    shard: Shard
    models: tuple[str, ...]
    led: bool
    outlook: Outlook | None
    due: int
    dead: int
    leases: dict[str, int]
    depths: Sequence[int]
    heads: Sequence[Sequence[Handle]]


class OverviewReader:
    """Looks again and again: speeds come from several looks, so keep one reader for as long as you watch."""

    def __init__(self, redis: Redis) -> None:
        """Read over this client, which stays open."""
        self._redis = redis
        self._speeds = Speeds()
        self._paces: dict[BatchName, Pace] = {}

    async def look(self) -> Overview:
        """The fleet as it is now, with all tenants' jobs: give nobody more than `seen_by` leaves.

        Raises:
            StoreUnavailable: Redis does not answer.
            NotAllowed: the user may not look; see `protocol.access.metrics`.
        """
        now_ms, models = await self._ask([(reads.store_time_ms(), 0), (reads.models(), {})])
        placed = shards_of(models)
        asked = [call for shard in placed for call in _of_shard(shard)]
        *answers, running = await self._ask([*asked, (overview_reads.running_batches(BATCHES_SHOWN), [])])
        rest = iter(answers)
        found = [_found(shard, names, list(islice(rest, _PER_SHARD))) for shard, names in placed.items()]
        batches = list(dict.fromkeys([*running, *self._paces]))
        asked = [call for one in found for call in _of_found(one)]
        rest = iter(await self._ask([*asked, *((batch_reads.batch_record(name), None) for name in batches)]))
        shards = tuple([self._shard(one, rest, now_ms) for one in found])
        self._speeds.keep({(one.shard, worker) for one in found for worker in one.leases})
        shown = self._batches(rest, now_ms)
        return Overview(now_ms, shards, self._speeds.first_tokens(now_ms), shown)

    async def _ask(self, calls: Sequence[tuple[Call[Any], Any]]) -> list[Any]:
        """The values, or what stands beside a call where a key was written by hand."""
        results = await run_all(self._redis, [call for call, _ in calls])
        return [_value(result, default) for result, (_, default) in zip(results, calls, strict=True)]

    def _shard(self, found: _Found, answers: Iterator[Any], now_ms: int) -> ShardView:
        lanes = [
            LaneView(priority, depth, max((now_ms - ms for ms in islice(answers, len(head)) if ms), default=0))
            for priority, depth, head in zip(Priority, found.depths, found.heads, strict=True)
        ]
        looks = [(next(answers), next(answers)) for _ in found.leases]
        workers = [self._worker(found.shard, record, jobs, now_ms) for record, jobs in looks if record]
        outlook = found.outlook
        return ShardView(
            shard=found.shard,
            models=found.models,
            led=found.led,
            policy=outlook.policy if outlook and found.led else "",
            workers_wanted=outlook.workers_wanted if outlook and now_ms - outlook.at_ms <= OUTLOOK_KEPT_MS else None,
            lanes=tuple(lanes),
            due=found.due,
            dead=found.dead,
            workers=tuple(sorted(workers, key=lambda worker: (worker.label, worker.id))),
        )

    def _worker(self, shard: Shard, record: WorkerRecord, jobs: tuple[Handle, ...], now_ms: int) -> WorkerView:
        self._speeds.note(shard, record, now_ms)
        report = record.report
        return WorkerView(
            id=record.id,
            label=record.label,
            state=state_of(record, now_ms),
            models=record.models,
            slots=record.slots,
            held=record.held,
            load_score=report.load_score,
            memory=report.memory,
            running=report.running,
            waiting=report.waiting,
            capacity=report.capacity,
            kv=report.kv if report.kv_total_tokens else None,
            device_utilisation=report.device_utilisation,
            device_temperature_c=report.device_temperature_c,
            report_age_ms=max(0, now_ms - record.report_ms),
            tokens_per_s=self._speeds.tokens_per_s(shard, record.id, now_ms),
            jobs=jobs,
        )

    def _batches(self, records: Iterator[BatchRecord | None], now_ms: int) -> tuple[BatchView, ...]:
        """The newest of those that run or have just ended, the newest first; the others' paces are forgotten."""
        kept = [record for record in records if record and now_ms - _ended_ms(record, now_ms) <= ENDED_KEPT_MS]
        kept.sort(key=lambda record: (record.times_ms[BatchStatus.VALIDATING], record.name.ref), reverse=True)
        del kept[BATCHES_SHOWN:]
        paces = {record.name: self._paces.get(record.name) or _new_pace(record, now_ms) for record in kept}
        self._paces = paces
        return tuple(_batch(record, paces[record.name], now_ms) for record in kept)


def _value(result: Any | FleetError, default: Any) -> Any:  # noqa: ANN401 - whatever each call yields
    if isinstance(result, (Unreadable, WrongType)):
        return default
    if isinstance(result, FleetError):
        raise result
    return result


def _of_shard(shard: Shard) -> list[tuple[Call[Any], Any]]:
    return [
        (overview_reads.is_led(shard), False),
        (published(shard), None),
        (reads.due_count(shard), 0),
        (reads.dead_count(shard), 0),
        (reads.leases(shard), {}),
        *((reads.lane_depth(shard, priority), 0) for priority in Priority),
        *((watch.lane_members(shard, priority, HEAD), []) for priority in Priority),
    ]


def _found(shard: Shard, models: tuple[str, ...], answers: Sequence[Any]) -> _Found:
    led, outlook, due, dead, leases, *lanes = answers
    depths, heads = lanes[: len(Priority)], lanes[len(Priority) :]
    refs = [[ref for member in head if (ref := watch.member_ref(member))] for head in heads]
    jobs = [[Handle.of(shard, ref) for ref in head] for head in refs]
    return _Found(shard, models, led, outlook, due, dead, leases, depths, jobs)


def _of_found(found: _Found) -> list[tuple[Call[Any], Any]]:
    looks = [
        call
        for worker, lease_ms in found.leases.items()
        for call in (
            (reads.worker_record(found.shard, worker, lease_ms), None),
            (overview_reads.held_jobs(found.shard, worker, JOBS_SHOWN), ()),
        )
    ]
    return [*((overview_reads.waits_since_ms(job), None) for head in found.heads for job in head), *looks]


def _batch(record: BatchRecord, pace: Pace, now_ms: int) -> BatchView:
    counts = record.counts
    done = counts.completed + counts.failed
    pace.note(now_ms / 1000, done, 0)
    runs = record.status is BatchStatus.IN_PROGRESS
    return BatchView(
        tenant=record.name.tenant,
        id=record.name.id,
        status=record.status,
        model=record.model or record.spec.model or "",
        rows=counts.total,
        completed=counts.completed,
        failed=counts.failed,
        left_s=pace.left_s(counts.total - done) if runs and counts.total else None,
        ended_ms=_ended_ms(record, now_ms) if record.status.terminal else 0,
    )


def _ended_ms(record: BatchRecord, now_ms: int) -> int:
    return record.times_ms.get(record.status, now_ms) if record.status.terminal else now_ms


def _new_pace(record: BatchRecord, now_ms: int) -> Pace:
    """The first look goes by the average since its rows run."""
    return Pace(min(record.times_ms.get(BatchStatus.IN_PROGRESS, now_ms), now_ms) / 1000)
