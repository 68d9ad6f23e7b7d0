"""The simulator's lanes beside the function library: the same submits, starts and cancels leave the same order."""

import random

from protocol import functions, keys
from protocol.functions import Move, TickTimes
from protocol.handle import Handle
from protocol.states import Priority
from scheduler.policy.view import JobView
from tests.support.builders import BOSS, SHARD, SPEC, tick_as
from tests.support.driver import Driver
from tokenfleet.simulate.lanes import Entry, Lanes

TENANTS = ("a", "b", "c")
HEAVY = 2.0
LONG_MS = 3_600_000


class Both:
    """Does everything twice."""

    def __init__(self, driver: Driver, seed: int) -> None:
        self._driver, self._rng, self._lanes = driver, random.Random(seed), Lanes()
        self._started: dict[str, tuple[JobView, int, Entry]] = {}
        self._handles: dict[str, Handle] = {}
        self._count = 0
        driver.redis.hset(keys.clock(SHARD), "weight:c", str(HEAVY))
        # However long the moves take.
        driver.run(tick_as(times=TickTimes(lead_ms=LONG_MS, lease_ms=LONG_MS)))
        driver.join(slots=10_000, lease_ms=LONG_MS)

    def submit(self) -> None:
        self._count += 1
        tenant, priority = self._rng.choice(TENANTS), self._rng.choice(list(Priority))
        tokens = self._rng.choice([10, 100, 1_000])
        asked = SPEC.model_copy(update={"prompt_tokens": tokens, "output_tokens": self._rng.choice([1, 90])})
        handle = self._driver.submit(f"{self._count}", tenant=tenant, priority=priority, spec=asked).handle
        ref = f"{tenant}:{self._count}"
        self._handles[ref] = handle
        self._lanes.of[priority].add(JobView(ref, ref, priority, asked, 0.0), HEAVY if tenant == "c" else 1.0)

    def start_one(self) -> None:
        """Any of a lane's first: the policy may pass some over."""
        lane = self._some_lane()
        if lane:
            self._start([lane[self._rng.randrange(min(4, len(lane)))]])

    def start_first(self) -> None:
        """Several from the front, in one call."""
        self._start(self._some_lane()[: self._rng.randrange(1, 5)])

    def cancel(self) -> None:
        lane = self._some_lane()
        if lane:
            job = self._rng.choice(lane)
            self._driver.run(functions.cancel(self._handles[job.ref]))
            self._lanes.of[job.priority].remove(job.ref)

    def put_back(self) -> None:
        """An attempt fails and is tried again."""
        if self._started:
            job, attempt, entry = self._started.pop(self._rng.choice(sorted(self._started)))
            handle = self._handles[job.ref]
            self._driver.start(handle, attempt)
            assert self._driver.run(functions.requeue(handle, attempt, "w1", "none")) == "ok"
            self._lanes.of[job.priority].put_back(job, entry)

    def compare(self) -> None:
        for priority, lane in self._lanes.of.items():
            assert self._driver.lane(priority) == [job.ref.partition(":")[2] for job in lane.heads()]

    def _some_lane(self) -> tuple[JobView, ...]:
        return self._lanes.of[self._rng.choice(list(Priority))].heads()

    def _start(self, jobs: list[JobView] | tuple[JobView, ...]) -> None:
        members = [self._driver.job(self._handles[job.ref]).member for job in jobs]
        attempts = self._driver.run(functions.assign(SHARD, BOSS, [Move(member, "w1") for member in members]))
        for priority, lane in self._lanes.of.items():
            entries = lane.take(job.ref for job in jobs if job.priority is priority)
            for job, attempt in zip(jobs, attempts or (), strict=True):
                if job.priority is priority:
                    assert isinstance(attempt, int)
                    self._started[job.ref] = job, attempt, entries[job.ref]


def test_the_same_order(driver: Driver) -> None:
    both, rng = Both(driver, seed=11), random.Random(12)
    moves = [both.submit] * 6 + [both.start_one] * 2 + [both.start_first, both.cancel, both.put_back]
    for _ in range(250):
        rng.choice(moves)()
        both.compare()
