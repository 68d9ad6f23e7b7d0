"""The block pool: sharing, eviction, and what is free."""

from worker.engine.sim.blocks import BlockPool


def filled(capacity: int, *names: str) -> BlockPool:
    """A pool whose blocks were held under these names and let go."""
    pool = BlockPool(capacity)
    assert pool.take(len(names))
    for name in names:
        assert pool.publish(name)
    pool.release(names, 0)
    return pool


def test_released_blocks_are_free_and_still_found() -> None:
    pool = filled(4, "a", "b")
    assert (pool.used, pool.free) == (0, 4)
    assert pool.share_prefix(["a", "b", "c"]) == ["a", "b"]
    assert (pool.used, pool.free) == (2, 2)


def test_a_chain_is_found_only_from_its_beginning() -> None:
    assert filled(4, "b").share_prefix(["a", "b"]) == []


def test_a_shared_block_counts_once_and_stays_until_its_last_holder_goes() -> None:
    pool = filled(4, "a")
    pool.share_prefix(["a"])
    pool.share_prefix(["a"])
    assert pool.used == 1
    pool.release(["a"], 0)
    assert pool.used == 1
    pool.release(["a"], 0)
    assert pool.used == 0


def test_the_end_of_the_oldest_chain_is_evicted_first() -> None:
    pool = filled(4, "a", "b")
    assert pool.take(3)
    assert pool.share_prefix(["a", "b"]) == ["a"]


def test_use_renews_a_block() -> None:
    pool = filled(2, "a")
    pool.take(1)
    pool.publish("z")
    pool.release(["z"], 0)
    pool.release(pool.share_prefix(["a"]), 0)
    assert pool.take(1)
    assert pool.share_prefix(["z"]) == []
    assert pool.share_prefix(["a"]) == ["a"]


def test_nothing_is_taken_without_room() -> None:
    pool = filled(2, "a")
    pool.share_prefix(["a"])
    assert not pool.take(2)
    assert pool.used == 1


def test_a_name_in_use_is_not_given_twice() -> None:
    pool = filled(3, "a")
    pool.share_prefix(["a"])
    pool.take(1)
    assert not pool.publish("a")
    assert pool.used == 2
