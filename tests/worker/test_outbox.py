"""The writer against the real functions: gathered frames, resent ones, and attempts that are not ours any more."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from protocol import keys, store
from protocol.call import Call
from protocol.functions import leave
from protocol.handle import Handle
from protocol.states import State
from tests.conftest import Backend
from tests.support.builders import SHARD
from tests.support.driver import Driver
from tests.support.waiting import eventually
from tests.worker.stage import word
from worker import outbox as outbox_module
from worker.outbox import Outbox
from worker.outgoing import KEPT_FRAMES, Outgoing
from worker.verdict import Drop, GiveBack, completed

NEVER_S = 1_000.0
"""As long as no test lasts: what is gathered goes out with something else only."""
RESULT = completed({"text": "all of it"})


@dataclass
class Desk:
    """An outbox at work, and what it says is over."""

    redis: Redis
    frame_s: float
    over: list[Outgoing] = field(default_factory=list)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Outbox]:
        outbox = Outbox(self.redis, self.frame_s, self.over.append)
        writing = asyncio.create_task(outbox.run())
        yield outbox
        writing.cancel()
        await asyncio.wait([writing])


@pytest.fixture
async def outbox(redis: Redis) -> AsyncIterator[Outbox]:
    async with Desk(redis, NEVER_S).open() as opened:
        yield opened


def out_of(running: tuple[Handle, int]) -> Outgoing:
    return Outgoing(*running, "w1")


def texts(driver: Driver, handle: Handle) -> list[str]:
    return [frame.text for frame in driver.log(handle) if not frame.seal]


def logged(driver: Driver, handle: Handle, *wanted: str) -> Callable[[], bool]:
    return lambda: texts(driver, handle) == list(wanted)


async def test_the_first_token_goes_at_once_and_the_rest_with_the_end(driver: Driver, outbox: Outbox) -> None:
    out = out_of(driver.running())
    outbox.say(out, word("One"))
    await outbox.hurry(out)
    await eventually(logged(driver, out.handle, "One"))
    for text in (" two", " three"):
        outbox.say(out, word(text))
    outbox.end(out, RESULT)
    await eventually(lambda: driver.job(out.handle).state is State.COMPLETED)
    assert texts(driver, out.handle) == ["One", " two three"]
    assert driver.log(out.handle)[1].chunks == (word(" two three"),)
    # Redis's answer comes after what it has written.
    await eventually(lambda: out.over)


async def test_gathered_tokens_go_out_when_their_time_is_over(driver: Driver, redis: Redis) -> None:
    one, other = out_of(driver.running("a")), out_of(driver.running("b"))
    async with Desk(redis, 0.01).open() as outbox:
        for out in (one, other, one):
            outbox.say(out, word("x"))
        await eventually(logged(driver, one.handle, "xx"))
        await eventually(logged(driver, other.handle, "x"))


async def test_a_log_that_lost_frames_gets_them_again(driver: Driver, outbox: Outbox) -> None:
    out = out_of(driver.running())
    for number in range(3):
        outbox.say(out, word(f"{number}"))
        await outbox.hurry(out)
        await eventually(logged(driver, out.handle, *(f"{n}" for n in range(number + 1))))
    # As after a restart from an append-only file that was cut.
    driver.redis.hset(keys.job(out.handle), "frames", "1")
    driver.redis.delete(keys.tokens(out.handle))
    outbox.end(out, RESULT)
    await eventually(lambda: driver.job(out.handle).state is State.COMPLETED)
    assert texts(driver, out.handle) == ["1", "2"]
    assert [frame.seq for frame in driver.log(out.handle)] == [2, 3, 4]


async def test_a_log_that_nobody_can_mend_leads_to_another_attempt(driver: Driver, redis: Redis) -> None:
    desk, out = Desk(redis, NEVER_S), out_of(driver.running())
    async with desk.open() as outbox:
        for number in range(1, KEPT_FRAMES + 3):
            outbox.say(out, word("x"))
            await outbox.hurry(out)
            await eventually(logged(driver, out.handle, *["x"] * number))
        driver.redis.hset(keys.job(out.handle), "frames", "1")
        outbox.say(out, word("x"))
        await outbox.hurry(out)
        await eventually(lambda: driver.job(out.handle).state is State.QUEUED)
    assert out.broken
    assert out in desk.over


async def test_a_first_token_waits_for_nothing_that_is_under_way(
    driver: Driver, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, outbox = out_of(driver.running()), Outbox(redis, NEVER_S, lambda _: None)
    # Nobody runs it: as if its pipeline took for ever.
    outbox.say(out, word("One"))
    await outbox.hurry(out)
    assert texts(driver, out.handle) == ["One"]
    monkeypatch.setattr(outbox_module, "EXPRESS", 0)
    outbox.say(out, word(" two"))
    await outbox.hurry(out)
    assert texts(driver, out.handle) == ["One"]
    writing = asyncio.create_task(outbox.run())
    await eventually(logged(driver, out.handle, "One", " two"))
    writing.cancel()
    await asyncio.wait([writing])


async def test_a_stale_attempt_is_told_once_and_writes_nothing(driver: Driver, redis: Redis) -> None:
    desk, out = Desk(redis, NEVER_S), out_of(driver.running())
    driver.run(leave(SHARD, "w1"))
    async with desk.open() as outbox:
        outbox.say(out, word("x"))
        await outbox.hurry(out)
        await eventually(lambda: desk.over == [out])
        outbox.say(out, word("y"))
        await outbox.hurry(out)
        outbox.end(out, RESULT)
        await eventually(lambda: len(desk.over) == 2)
    assert driver.log(out.handle) == []
    assert driver.job(out.handle).state is State.QUEUED


async def test_what_is_dropped_says_nothing(driver: Driver, redis: Redis) -> None:
    desk, out = Desk(redis, NEVER_S), out_of(driver.running())
    async with desk.open() as outbox:
        outbox.say(out, word("x"))
        outbox.end(out, Drop())
        assert desk.over == [out]
    assert driver.log(out.handle) == []


async def test_a_job_given_back_keeps_what_it_has_said(driver: Driver, outbox: Outbox) -> None:
    out = out_of(driver.running())
    outbox.say(out, word("half"))
    outbox.end(out, GiveBack("try", delay_ms=60_000))
    await eventually(lambda: driver.job(out.handle).state is State.DELAYED)
    assert texts(driver, out.handle) == ["half"]
    assert driver.job(out.handle).tries == 1


async def test_many_ends_are_written(driver: Driver, outbox: Outbox) -> None:
    driver.lead()
    driver.join(slots=400)
    outs = [out_of(driver.running(f"job{n}")) for n in range(2)]
    for out in outs:
        outbox.end(out, RESULT)
    await eventually(lambda: all(out.over for out in outs))


async def test_what_redis_refuses_is_tried_until_an_operator_mends_it(
    real_backend: Backend, real_driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "REFUSED_RETRY_S", 0.01)
    out = out_of(real_driver.running())
    real_driver.redis.acl_setuser("poor", enabled=True, nopass=True, keys=["*"], commands=["+@all"])
    _allow(real_driver, "resetchannels")
    client = store.connect(real_backend.url.replace("redis://", "redis://poor:x@"))
    try:
        with capture_logs() as lines:
            async with Desk(client, NEVER_S).open() as outbox:
                outbox.end(out, RESULT)
                await eventually(lambda: lines and lines[0]["event"] == "write_refused")
                assert not out.over
                _allow(real_driver, "allchannels")
                await eventually(lambda: out.over)
    finally:
        await client.aclose()
        real_driver.redis.acl_deluser("poor")
    assert real_driver.job(out.handle).state is State.COMPLETED


def _allow(driver: Driver, rule: str) -> None:
    driver.run(Call(("ACL", "SETUSER", "poor", rule), bool))
