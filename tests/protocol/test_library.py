"""Loading the function library: where it is missing or differs, and not else."""

import pytest
from redis.asyncio import Redis

from protocol import functions, library
from protocol.call import Call, run
from protocol.errors import LibraryMissing
from tests.support.builders import a_submission

OTHER = f"#!lua name={library.NAME}\nredis.register_function('tf1_submit', function() return {{'ok'}} end)"


async def load_other(redis: Redis) -> None:
    await run(redis, Call(("FUNCTION", "LOAD", "REPLACE", OTHER), bool))


async def test_it_is_loaded_where_it_is_missing(redis: Redis) -> None:
    await run(redis, Call(("FUNCTION", "FLUSH"), bool))
    assert not await library.is_loaded(redis)
    with pytest.raises(LibraryMissing, match="tokenfleet scheduler"):
        await run(redis, functions.submit(a_submission()))
    await library.load(redis)
    assert await library.is_loaded(redis)


async def test_it_is_replaced_where_it_differs(redis: Redis) -> None:
    await load_other(redis)
    assert not await library.is_loaded(redis)
    await library.load(redis)
    assert await library.is_loaded(redis)


async def test_loading_it_twice_is_harmless(redis: Redis) -> None:
    await library.load(redis)
    await library.load(redis)
    assert await library.is_loaded(redis)


def test_every_function_has_both_sides() -> None:
    declared = set(functions.__all__)
    for line in library.source().splitlines():
        if "function_name = 'tf1_" in line:
            assert line.split("'tf1_")[1].split("'")[0] in declared
