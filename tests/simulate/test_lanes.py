"""The simulator's lanes are those of the function library; and a million queued jobs cost it little."""

import random

from protocol import keys, reads
from protocol.handle import Handle
from protocol.states import Priority
from scheduler.policy.view import HEADS, JobView
from tests.support.builders import SHARD, SPEC
from tests.support.driver import Driver
from tokenfleet.simulate.lanes import Lane

WEIGHTS = {"a": 1.0, "b": 2.0, "c": 0.5}


def view(handle: Handle, output_tokens: int) -> JobView:
    spec = SPEC.model_copy(update={"output_tokens": output_tokens})
    return JobView(handle.ref, handle.ref, Priority.HIGH, spec, 0.0)


def test_places_and_times_are_those_of_the_function_library(driver: Driver) -> None:
    driver.lead()
    driver.join(slots=1_000)
    chance, lane = random.Random(1), Lane()
    waiting: dict[str, Handle] = {}
    for tenant, weight in WEIGHTS.items():
        driver.redis.hset(keys.clock(SHARD), f"weight:{tenant}", str(weight))
    for number in range(200):
        if waiting and chance.random() < 0.25:
            # Some of the first in one call, in any order, as policies choose.
            first = [job.ref for job in lane.heads()[:4]]
            refs = chance.sample(first, chance.randint(1, len(first)))
            driver.assign_all([waiting.pop(ref) for ref in refs])
            assert lane.take(refs).keys() == set(refs)
        else:
            tenant, output_tokens = chance.choice(tuple(WEIGHTS)), chance.randrange(0, 900, 10)
            spec = SPEC.model_copy(update={"output_tokens": output_tokens})
            handle = driver.submit(f"j{number}", tenant=tenant, spec=spec).handle
            waiting[handle.ref] = handle
            lane.add(view(handle, output_tokens), WEIGHTS[tenant])
        entries = driver.run(reads.lane_head(SHARD, Priority.HIGH, HEADS))
        assert [entry.ref for entry in entries] == [job.ref for job in lane.heads()]


def test_the_window_is_the_lanes_beginning_however_long_it_is() -> None:
    chance, lane = random.Random(2), Lane()
    for number in range(3 * HEADS):
        lane.add(view(Handle(SHARD, f"t{number % 7}", str(number)), chance.randrange(1, 500)))
    taken: list[str] = []
    while heads := lane.heads():
        assert len(heads) == min(HEADS, len(lane))
        job = chance.choice(heads[:20])
        entry = lane.take([job.ref])[job.ref]
        if chance.random() < 0.1:
            lane.put_back(job, entry)
            assert job in lane.heads()
        else:
            taken.append(job.ref)
    assert len(set(taken)) == len(taken) == 3 * HEADS
    assert not lane.take(taken[:1])
