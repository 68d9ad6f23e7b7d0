"""A large fleet that is none: what a reader of Redis would have seen of it, changing from look to look."""

import random
from collections.abc import Sequence
from itertools import count

from producer.dead import SetAside
from producer.overview import BatchView, FirstTokens, LaneView, Overview, ShardView, WorkerView
from protocol.batches import BatchStatus
from protocol.handle import Handle, Shard
from protocol.states import Priority

WORKERS = 100
JOBS = 10_000
SHARDS = (Shard("chat", 0), Shard("chat", 1), Shard("embed", 0), Shard("draft", 0))
TENANTS = ("acme", "default", "web")
TURNOVER = 0.05
"""This share of the jobs ends between two looks, and as many begin: each runs for about 20 looks."""
BATCHES = 20
ROWS = 50_000
DEAD = 50
START_MS = 1_800_000_000_000


class SyntheticFleet:
    """`read` is the next look at it; `step_ms` of Redis's time pass between two."""

    def __init__(self, workers: int = WORKERS, jobs: int = JOBS, *, step_ms: int = 1_000, seed: int = 1) -> None:
        """Give each of `workers` its part of `jobs`."""
        self._chance = random.Random(seed)
        self._names = count()
        self._step_ms = step_ms
        self._now_ms = START_MS
        self._rows = 0
        self._share = jobs // workers
        self._jobs = {
            number: [self._job(SHARDS[number % len(SHARDS)]) for _ in range(self._share)] for number in range(workers)
        }
        self._dead = [SetAside(self._job(SHARDS[0]), START_MS - 60_000 * number, None) for number in range(DEAD)]

    async def read(self) -> tuple[Overview, Sequence[SetAside]]:
        """As the gateway's watch asks for it."""
        self._now_ms += self._step_ms
        self._rows = (self._rows + 150) % ROWS
        for number in self._jobs:
            self._turn(number)
        shards = tuple(self._shard(index, shard) for index, shard in enumerate(SHARDS))
        firsts = FirstTokens(self._chance.randrange(1, 1000), self._chance.randrange(50, 200), 900)
        return Overview(self._now_ms, shards, firsts, self._batches()), self._dead

    def _job(self, shard: Shard) -> Handle:
        return Handle(
            shard, self._chance.choice(TENANTS), f"{next(self._names):06d}{self._chance.getrandbits(40):010x}"
        )

    def _turn(self, number: int) -> None:
        shard = SHARDS[number % len(SHARDS)]
        stay = [job for job in self._jobs[number] if self._chance.random() > TURNOVER]
        self._jobs[number] = stay + [self._job(shard) for _ in range(self._share - len(stay))]

    def _shard(self, index: int, shard: Shard) -> ShardView:
        lanes = tuple(LaneView(priority, self._chance.randrange(5_000), 1_500) for priority in Priority)
        mine = [self._worker(number) for number in self._jobs if number % len(SHARDS) == index]
        return ShardView(shard, (f"{shard.pool}-70b",), True, "predictive", len(mine) + 1, lanes, 3, DEAD, tuple(mine))  # noqa: FBT003 - it is led

    def _worker(self, number: int) -> WorkerView:
        chance, jobs = self._chance, tuple(self._jobs[number])
        return WorkerView(
            id=f"{number:016x}",
            label=f"gpu-host-{number:03d}",
            state="active",
            models=(),
            slots=self._share + 28,
            held=len(jobs),
            load_score=chance.random(),
            memory=chance.random(),
            running=len(jobs),
            waiting=chance.randrange(30),
            capacity=self._share + 28,
            kv=chance.random(),
            device_utilisation=chance.random(),
            device_temperature_c=chance.randrange(40, 80),
            report_age_ms=chance.randrange(500),
            tokens_per_s=chance.randrange(2_000),
            jobs=jobs,
        )

    def _batches(self) -> tuple[BatchView, ...]:
        runs = BatchStatus.IN_PROGRESS
        left_s = (ROWS - self._rows) / 150
        return tuple(
            BatchView(TENANTS[number % 3], f"batch_{number:08x}", runs, "chat-70b", ROWS, self._rows, 7, left_s, 0)
            for number in range(BATCHES)
        )
