"""Batches in Redis: one owner by a lease, states in their order, times that stay, bounds."""

import itertools
import re
from importlib.resources import files
from typing import Any

import pytest
from openai.types import Batch

from protocol import batch_reads, functions, keys, reads
from protocol.batches import (
    BATCH_TRANSITIONS,
    BatchChange,
    BatchCounts,
    BatchError,
    BatchName,
    BatchRecord,
    BatchSpec,
    BatchStatus,
    BatchUsage,
    checked_metadata,
)
from protocol.call import Call
from protocol.errors import ConflictingId, InvalidRequest, QueueFull, UnknownBatch
from protocol.functions import BatchLease
from tests.support.driver import Driver

NAME = BatchName("t", "batch_1")
SPEC = BatchSpec(input_file_id="file-1", endpoint="/v1/chat/completions", metadata={"team": "a"})
LEASE_MS, KEEP_MS = 5_000, 60_000
MINE = BatchLease(NAME, "mine", LEASE_MS)
WAYS = {
    BatchStatus.VALIDATING: [],
    BatchStatus.IN_PROGRESS: ["in_progress"],
    BatchStatus.FINALIZING: ["in_progress", "finalizing"],
    BatchStatus.COMPLETED: ["in_progress", "finalizing", "completed"],
    BatchStatus.FAILED: ["failed"],
    BatchStatus.EXPIRED: ["in_progress", "expired"],
    BatchStatus.CANCELLING: ["in_progress", "cancelling"],
    BatchStatus.CANCELLED: ["cancelling", "cancelled"],
}


def created(driver: Driver, name: BatchName = NAME, **changes: Any) -> bool:
    return driver.run(functions.batch_create(name, SPEC.model_copy(update=changes)))


def write(driver: Driver, lease: BatchLease = MINE, *, notify: bool = False, **change: Any) -> BatchStatus | None:
    return driver.run(functions.batch_write(lease, BatchChange(**change), KEEP_MS, notify=notify))


def record(driver: Driver, name: BatchName = NAME) -> BatchRecord:
    found = driver.run(batch_reads.batch_record(name))
    assert found is not None
    return found


def brought_to(driver: Driver, status: BatchStatus, *, notify: bool = False) -> BatchRecord:
    created(driver)
    driver.run(functions.batch_take(NAME, "mine", LEASE_MS))
    for step in WAYS[status]:
        assert write(driver, status=BatchStatus(step), notify=notify) == step
    return record(driver)


def test_lua_has_the_same_transitions() -> None:
    text = (files("protocol.functions") / "_batch.lua").read_text()
    rows = {name: set(re.findall(r"(\w+) = true", row)) for name, row in re.findall(r"(\w+) = \{(.*?)\},", text)}
    assert rows == {str(status): {*map(str, after)} for status, after in BATCH_TRANSITIONS.items() if after}


@pytest.mark.parametrize("before", BatchStatus)
def test_only_what_may_follow_is_taken(driver: Driver, before: BatchStatus) -> None:
    for after in BatchStatus:
        driver.redis.flushdb()
        brought_to(driver, before)
        now = write(driver, status=after, output_file_id="file-out")
        if before.terminal:
            assert now is None
        else:
            assert now == (after if after in BATCH_TRANSITIONS[before] else before)
        taken = not before.terminal and (after in BATCH_TRANSITIONS[before] or after is before)
        assert (record(driver).output_file_id == "file-out") is taken
        assert record(driver).status == (now or before)


@pytest.mark.parametrize("status", BatchStatus)
def test_openai_accepts_every_state(driver: Driver, status: BatchStatus) -> None:
    created(driver)
    driver.run(functions.batch_take(NAME, "mine", LEASE_MS))
    counts, errors = BatchCounts(total=3, completed=1, failed=1), (BatchError(code="c", message="m", line=2),)
    write(driver, counts=counts, usage=BatchUsage(input_tokens=4, output_tokens=2), errors=errors, model="m")
    for step in WAYS[status]:
        write(driver, status=BatchStatus(step))
    seen = record(driver)
    batch = Batch.model_validate(seen.as_json(), strict=True)
    assert batch.status == status
    assert (batch.request_counts, batch.usage) != (None, None)
    assert batch.metadata == {"team": "a"}
    assert batch.created_at == seen.times_ms[BatchStatus.VALIDATING] // 1000
    assert batch.expires_at == batch.created_at + 86_400
    reached = {BatchStatus.VALIDATING, *map(BatchStatus, WAYS[status])}
    for one in set(BatchStatus) - {BatchStatus.VALIDATING}:
        assert (getattr(batch, f"{one}_at") is not None) is (one in reached), one
    # Our own members are none: an unmodified client would show them as extras.
    assert not batch.model_extra


def test_times_are_never_cleared_nor_moved(driver: Driver) -> None:
    times: dict[BatchStatus, int] = {}
    created(driver)
    driver.run(functions.batch_take(NAME, "mine", LEASE_MS))
    for step in WAYS[BatchStatus.COMPLETED]:
        write(driver, status=BatchStatus(step))
        write(driver, status=BatchStatus(step))
        now = record(driver).times_ms
        assert times.items() <= now.items()
        times = now
    assert set(times) == {BatchStatus.VALIDATING, *map(BatchStatus, WAYS[BatchStatus.COMPLETED])}


def test_creating_twice_is_one_batch(driver: Driver) -> None:
    assert created(driver)
    assert not created(driver)
    with pytest.raises(ConflictingId):
        created(driver, input_file_id="file-2")
    assert driver.run(batch_reads.batch_ids("t", 10)) == [NAME]


def test_what_a_gateway_wrote_before_there_was_an_order_is_the_same_batch(driver: Driver) -> None:
    created(driver)
    older = SPEC.model_dump_json(exclude={"order"})
    driver.run(Call(("HSET", keys.batch(NAME), "spec", older), int))
    assert not created(driver)
    assert record(driver).spec == SPEC
    with pytest.raises(ConflictingId):
        created(driver, order="input")


def test_an_order_that_is_asked_for_stands_in_the_record(driver: Driver) -> None:
    created(driver, order="input")
    assert record(driver).spec.order == "input"


def test_a_tenant_has_so_many_batches(driver: Driver) -> None:
    driver.run(functions.batch_create(NAME, SPEC, most=1))
    with pytest.raises(QueueFull):
        driver.run(functions.batch_create(BatchName("t", "batch_2"), SPEC, most=1))
    assert driver.run(functions.batch_create(BatchName("other", "batch_2"), SPEC, most=1))


def test_the_newest_come_first_in_pages(driver: Driver) -> None:
    names = [BatchName("t", f"batch_{number}") for number in range(5)]
    for name in names:
        created(driver, name)
    # Created within one ms, they stand in the order of their ids; never is one left out or shown twice.
    first = driver.run(batch_reads.batch_ids("t", 2))
    place = driver.run(batch_reads.batch_place(first[-1]))
    assert place == 1
    rest = driver.run(batch_reads.batch_ids("t", 10, place + 1))
    assert sorted([*first, *rest], key=lambda name: name.id) == names
    assert driver.run(batch_reads.batch_place(BatchName("t", "batch_9"))) is None


def test_a_batch_has_one_owner(driver: Driver) -> None:
    created(driver)
    assert driver.run(functions.batch_take(NAME, "mine", LEASE_MS)) == 1
    assert driver.run(functions.batch_take(NAME, "other", LEASE_MS)) == 0
    assert write(driver, BatchLease(NAME, "other", LEASE_MS), status=BatchStatus.IN_PROGRESS) is None
    assert record(driver).status is BatchStatus.VALIDATING


def test_one_that_lapsed_goes_to_another_and_its_owner_writes_nothing_more(driver: Driver) -> None:
    created(driver)
    driver.run(functions.batch_take(NAME, "mine", 1))
    driver.redis.zadd(keys.LIVING_BATCHES, {NAME.ref: 1})
    now_ms = driver.run(reads.store_time_ms())
    assert driver.run(batch_reads.idle_batches(now_ms)) == [NAME]
    assert driver.run(functions.batch_take(NAME, "other", LEASE_MS)) == 2
    assert driver.run(batch_reads.idle_batches(now_ms)) == []
    for status in (None, *BatchStatus):
        assert write(driver, status=status, output_file_id="file-out") is None
    assert not driver.run(functions.batch_release(MINE))
    assert (record(driver).takes, record(driver).output_file_id) == (2, None)


def test_an_owner_that_was_late_goes_on_when_nobody_else_came(driver: Driver) -> None:
    created(driver)
    driver.run(functions.batch_take(NAME, "mine", 1))
    driver.redis.zadd(keys.LIVING_BATCHES, {NAME.ref: 1})
    assert write(driver) is BatchStatus.VALIDATING
    assert driver.run(functions.batch_take(NAME, "other", LEASE_MS)) == 0


def test_what_is_handed_over_is_free_at_once(driver: Driver) -> None:
    created(driver)
    driver.run(functions.batch_take(NAME, "mine", LEASE_MS))
    assert driver.run(functions.batch_release(MINE))
    assert write(driver) is None
    assert driver.run(functions.batch_take(NAME, "other", LEASE_MS)) == 2


def test_nobody_is_told_of_one_that_pauses(driver: Driver) -> None:
    created(driver)
    driver.run(functions.batch_take(NAME, "mine", LEASE_MS))
    driver.run(functions.batch_release(MINE, 60_000))
    assert driver.run(batch_reads.idle_batches(driver.run(reads.store_time_ms()))) == []
    assert driver.run(batch_reads.living_batches()) == [NAME]


@pytest.mark.parametrize("status", BatchStatus)
def test_a_cancel_reaches_what_has_not_begun_to_end(driver: Driver, status: BatchStatus) -> None:
    brought_to(driver, status)
    assert driver.run(functions.batch_cancel(NAME)) is status
    begun = status in (BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS)
    assert record(driver).status is (BatchStatus.CANCELLING if begun else status)
    assert driver.run(functions.batch_cancel(BatchName("other", NAME.id))) is None


def test_after_a_cancel_its_owner_learns_of_it_and_completes_nothing(driver: Driver) -> None:
    brought_to(driver, BatchStatus.IN_PROGRESS)
    driver.run(functions.batch_cancel(NAME))
    assert write(driver) is BatchStatus.CANCELLING
    assert write(driver, status=BatchStatus.FINALIZING, output_file_id="file-out") is BatchStatus.CANCELLING
    assert record(driver).output_file_id is None


@pytest.mark.parametrize("status", BatchStatus)
def test_only_what_has_ended_is_dropped_with_all_that_is_known_of_it(driver: Driver, status: BatchStatus) -> None:
    brought_to(driver, status, notify=True)
    assert driver.run(functions.batch_drop(NAME)) is status.terminal
    assert (driver.run(batch_reads.batch_record(NAME)) is None) is status.terminal
    if status.terminal:
        assert driver.redis.keys("tf:{batches}*") == []


def test_an_end_is_told_and_kept_for_its_time(driver: Driver) -> None:
    brought_to(driver, BatchStatus.COMPLETED, notify=True)
    now_ms = driver.run(reads.store_time_ms())
    assert driver.run(batch_reads.untold_batches(now_ms)) == [NAME]
    assert driver.run(batch_reads.untold(NAME))
    assert driver.run(batch_reads.told(NAME))
    assert driver.run(batch_reads.untold_batches(now_ms)) == []
    assert not driver.run(batch_reads.untold(NAME))
    assert driver.run(batch_reads.outdated_batches(now_ms)) == []
    assert driver.run(batch_reads.outdated_batches(now_ms + KEEP_MS)) == [NAME]
    assert driver.run(functions.batch_take(NAME, "other", LEASE_MS)) == 0
    assert 0 < driver.run(Call(("PTTL", keys.batch(NAME)), int)) <= KEEP_MS + 7 * 86_400_000


@pytest.mark.parametrize(("tenant", "batch_id"), [("t", "batch_a:b"), ("t", "job-1"), ("t", "batch_{}"), ("t", "")])
def test_a_name_reaches_no_other_key(tenant: str, batch_id: str) -> None:
    with pytest.raises(UnknownBatch):
        BatchName.of(tenant, batch_id)


def test_names_by_hand_are_passed_over(driver: Driver) -> None:
    driver.redis.zadd(keys.LIVING_BATCHES, {"no name": 0, "T:batch_1": 0, "t:batch_1": 0})
    assert driver.run(batch_reads.living_batches()) == [NAME]
    driver.redis.delete(keys.LIVING_BATCHES)


def _metadata(pairs: int, key: int, value: int) -> dict[str, str]:
    return {f"{number:0{key}}": "v" * value for number in range(pairs)}


@pytest.mark.parametrize("bad", [_metadata(17, 2, 1), _metadata(1, 65, 1), _metadata(1, 1, 513), {"": "v"}, {"k": 1}])
def test_metadata_beyond_openais_limits_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        checked_metadata(bad)


def test_metadata_at_openais_limits_is_taken() -> None:
    most = _metadata(16, 64, 512)
    assert checked_metadata(most) == most


def test_the_ways_of_these_tests_cover_every_state() -> None:
    for status, steps in WAYS.items():
        pairs = itertools.pairwise([BatchStatus.VALIDATING, *map(BatchStatus, steps)])
        assert all(after in BATCH_TRANSITIONS[before] for before, after in pairs)
        assert [BatchStatus.VALIDATING, *map(BatchStatus, steps)][-1] is status
