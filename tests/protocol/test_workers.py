"""What a worker tells with its beats, and what an operator tells a worker."""

from typing import Any

from protocol import functions, keys, reads, watch
from protocol.functions import Beat
from protocol.messages import LoadReport
from tests.support.builders import SHARD
from tests.support.driver import Driver


def beat(driver: Driver, **changes: Any) -> None:
    message = Beat("w1", "gpu-0", "active", 4, 10_000, LoadReport(), **changes)
    assert driver.run(functions.beat(SHARD, message)) is not None


def test_models_are_part_of_the_record(driver: Driver) -> None:
    beat(driver, join=True, models=("llama", "llama-for-lawyers"))
    record, now = driver.run(reads.worker_record(SHARD, "w1")), driver.run(watch.worker_now(SHARD, "w1"))
    assert record is not None
    assert now is not None
    assert record.models == ("llama", "llama-for-lawyers")
    assert now.models == {"llama", "llama-for-lawyers"}


def test_beats_tell_what_has_changed_of_the_prefixes(driver: Driver) -> None:
    beat(driver, join=True, added=("a", "b"))
    beat(driver)
    beat(driver, added=("c",), removed=("a",))
    now = driver.run(watch.worker_now(SHARD, "w1"))
    assert now is not None
    assert now.prefixed == 2
    assert driver.run(watch.prefixes(SHARD, "w1")) == {"b", "c"}


def test_prefixes_go_with_their_worker(driver: Driver) -> None:
    beat(driver, join=True, added=("a",))
    assert driver.run(functions.leave(SHARD, "w1"))
    assert driver.run(watch.prefixes(SHARD, "w1")) == frozenset()


def test_a_broken_list_of_models_stops_nobody(driver: Driver) -> None:
    beat(driver, join=True)
    driver.redis.hset(keys.worker(SHARD, "w1"), "models", "no JSON")
    now = driver.run(watch.worker_now(SHARD, "w1"))
    assert now is not None
    assert now.models == frozenset()


def test_a_command_is_named_by_its_inbox_entry(driver: Driver) -> None:
    beat(driver, join=True)
    entry_id = driver.run(functions.command(SHARD, "w1", "promote"))
    (entry,) = driver.inbox("w1")
    assert (entry.entry_id, entry.command) == (entry_id, "promote")


def test_nobody_can_command_a_worker_without_a_lease(driver: Driver) -> None:
    assert driver.run(functions.command(SHARD, "w1", "drain")) is None
