"""Streams that begin go ahead of those that go on."""

import asyncio

import pytest

from protocol.turns import AT_ONCE, Turns

MANY = 10 * AT_ONCE


@pytest.fixture
def turns() -> Turns:
    return Turns()


async def test_all_get_their_turn_in_the_order_in_which_they_came(turns: Turns) -> None:
    done: list[int] = []

    async def go_on(number: int) -> None:
        await turns.wait()
        done.append(number)

    await asyncio.gather(*map(go_on, range(MANY)))
    await asyncio.gather(*map(go_on, range(MANY, MANY + 2)))
    assert done == list(range(MANY + 2))


async def test_who_begins_waits_for_few_of_those_who_go_on(turns: Turns) -> None:
    done: list[str] = []

    async def go_on() -> None:
        await turns.wait()
        done.append("goes on")

    async def begin() -> None:
        done.append("begins")

    going = [asyncio.create_task(go_on()) for _ in range(MANY)]
    # Its token comes last, as that of a request which an engine has taken in last.
    beginning = asyncio.create_task(begin())
    await asyncio.gather(*going, beginning)
    assert done.index("begins") <= AT_ONCE
    assert len(done) == MANY + 1


async def test_who_is_cancelled_holds_nobody_up(turns: Turns) -> None:
    waiting = [asyncio.create_task(turns.wait()) for _ in range(MANY)]
    for task in waiting[1::2]:
        # Before it has begun to wait, and while it waits.
        task.cancel()
    await asyncio.sleep(0)
    for task in waiting[::4]:
        task.cancel()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [end is None for end in ended] == [number % 4 == 2 for number in range(MANY)]
    async with asyncio.timeout(5):
        await turns.wait()
