"""A client that acts for one tenant: others' jobs are not there for it, in the library as on the command line."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result
from redis.asyncio import Redis

from producer.dead import list_dead, read_dead
from producer.fleet import Fleet
from protocol import functions, keys
from protocol.call import run, run_sync
from protocol.errors import InvalidRequest, NotAllowed, NotDead, SetupError, UnknownJob
from protocol.handle import Handle
from protocol.messages import ModelRecord
from protocol.settings import Settings
from protocol.states import State
from tests.access.duties import dead
from tests.conftest import Backend
from tests.protocol.branches import HANDLE
from tests.support.builders import SHARD
from tests.support.driver import Driver
from tokenfleet.cli import main as cli

MODEL = "m"
Ask = Callable[[Fleet, str], Awaitable[Any]]
ASKS: dict[str, Ask] = {
    "job": lambda fleet, handle: fleet.job(handle),
    "result": lambda fleet, handle: fleet.result(handle, timeout=1),
    "follow": lambda fleet, handle: anext(fleet.follow(handle)),
    "text": lambda fleet, handle: anext(fleet.text(handle)),
    "cancel": lambda fleet, handle: fleet.cancel(handle),
    "replay": lambda fleet, handle: fleet.replay(handle),
    "dead": lambda fleet, handle: read_dead(fleet.redis, fleet.scope.known(Handle.parse(handle))),
}


@pytest.fixture
async def acme(redis: Redis) -> AsyncIterator[Fleet]:
    await run(redis, functions.register(MODEL, ModelRecord(pool="pool")))
    async with Fleet(redis=redis, settings=Settings(tenant="acme", redis_patience_s=5)) as client:
        yield client


@pytest.fixture
async def everyone(redis: Redis) -> AsyncIterator[Fleet]:
    async with Fleet(redis=redis, settings=Settings(redis_patience_s=5)) as client:
        yield client


@pytest.mark.parametrize("name", ASKS)
async def test_a_foreign_job_and_a_missing_one_get_the_same_answer(acme: Fleet, everyone: Fleet, name: str) -> None:
    foreign = await everyone.submit(model=MODEL, prompt="secret", tenant="evil", id="mine", stream=True)
    # Its own job of the same id is no answer either.
    own = await acme.submit(model=MODEL, prompt="mine", id="mine")
    told = set()
    for handle in (str(foreign), str(foreign).replace("mine", "never"), str(own).replace("mine", "never")):
        with pytest.raises((UnknownJob, NotDead)) as error:
            await ASKS[name](acme, handle)
        told.add((type(error.value), str(error.value), error.value.code))
    assert len(told) == 1
    assert (await everyone.job(foreign)).record.state is State.QUEUED
    assert (await acme.job(own)).record.state is State.QUEUED
    for job in (foreign, own):
        await everyone.cancel(job)


async def test_nothing_is_forgotten_for_others(acme: Fleet, everyone: Fleet) -> None:
    foreign = await everyone.submit(model=MODEL, prompt="secret", tenant="evil")
    await everyone.cancel(foreign)
    for handle in (str(foreign), str(foreign) + "x"):
        assert await acme.forget(handle, 0) is True
    assert (await everyone.result(foreign)).state is State.CANCELLED


async def test_a_client_submits_for_its_own_tenant_only(acme: Fleet) -> None:
    job = await acme.submit(model=MODEL, prompt="x")
    assert job.handle.tenant == "acme"
    assert (await acme.submit(model=MODEL, prompt="x", tenant="acme")).handle.tenant == "acme"
    with pytest.raises(InvalidRequest, match="one tenant only"):
        await acme.submit(model=MODEL, prompt="x", tenant="evil")
    with pytest.raises(InvalidRequest, match="one tenant only"):
        Fleet("redis://host", tenant="evil", settings=acme.settings)
    with pytest.raises(SetupError, match="tenant"):
        Settings.load(tenant="a:*")


async def test_what_was_set_aside_is_listed_for_its_tenant_only(driver: Driver, backend: Backend) -> None:
    dead(driver)
    run_sync(driver.redis, functions.register(MODEL, ModelRecord(pool=SHARD.pool)))
    redis = backend.connect()
    for tenant, seen in (("", 1), (HANDLE.tenant, 1), ("acme", 0)):
        async with Fleet(redis=redis, settings=Settings(tenant=tenant)) as client:
            assert len(await list_dead(redis, scope=client.scope)) == seen
    await redis.aclose()


def test_the_command_line_gives_the_same_answer_too(real_driver: Driver, redis_url: str) -> None:
    dead(real_driver)
    run_sync(real_driver.redis, functions.register(MODEL, ModelRecord(pool=SHARD.pool)))
    environment = {"TOKENFLEET_REDIS_URL": redis_url, "TOKENFLEET_TENANT": "acme", "TOKENFLEET_REDIS_PATIENCE_S": "5"}

    def ask(*words: str) -> Result:
        return CliRunner().invoke(cli, [*words], env=environment)

    for command in (["job"], ["follow"], ["cancel"], ["explain"], ["dead", "show"], ["dead", "replay"]):
        answers = [ask(*command, str(handle)) for handle in (HANDLE, f"{SHARD}.acme.never")]
        assert len({(answer.exit_code, answer.output) for answer in answers}) == 1
        assert answers[0].exit_code == 2
    assert ask("dead", "list", "--json").output == ""
    status = ask("status", "--json").output
    assert json.loads(status)["shards"]
    assert str(HANDLE) not in status
    assert HANDLE.ref not in status


async def finished(driver: Driver, client: Fleet, **more: Any) -> Any:
    """A job with a result."""
    run_sync(driver.redis, functions.register(MODEL, ModelRecord(pool=SHARD.pool)))
    job = await client.submit(model=MODEL, prompt="x", stream=True, **more)
    driver.lead()
    driver.join()
    attempt = driver.restarted(job.handle)
    driver.emit(job.handle, attempt, 1)
    driver.finish(job.handle, attempt, frames=1)
    return job


@pytest.mark.parametrize("how", ["result", "follow"])
async def test_a_result_can_be_read_once(driver: Driver, backend: Backend, how: str) -> None:
    redis = backend.connect()
    async with Fleet(redis=redis, settings=Settings(delete_on_read=how == "follow")) as client:
        job = await finished(driver, client, **({"delete_on_read": True} if how == "result" else {}))
        if how == "result":
            assert (await job.result(timeout=5)).state is State.COMPLETED
        else:
            assert [event async for event in job.follow()][-1].outcome.state is State.COMPLETED
        with pytest.raises(UnknownJob):
            await job.result(timeout=1)
    await redis.aclose()
    assert not [key for key in driver.snapshot().entries if str(job.handle.ref) in key]


async def test_a_result_is_kept_for_as_long_as_asked(driver: Driver, backend: Backend) -> None:
    redis = backend.connect()
    async with Fleet(redis=redis, settings=Settings(delete_on_read=True)) as client:
        job = await finished(driver, client, delete_on_read=False, keep=5)
        for _ in range(2):
            assert (await job.result(timeout=5)).state is State.COMPLETED
        left_ms: Any = driver.redis.pttl(keys.result(job.handle))
        assert 0 < left_ms <= 5_000
        for bad in ({"keep": 0}, {"keep": "5"}, {"delete_on_read": 1}):
            with pytest.raises(InvalidRequest, match=next(iter(bad))):
                await client.submit(model=MODEL, prompt="x", **bad)
    await redis.aclose()


async def test_what_may_not_be_forgotten_is_still_read(
    driver: Driver, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a subscriber's result is, whose user only reads."""
    redis = backend.connect()
    async with Fleet(redis=redis, settings=Settings()) as client:
        job = await finished(driver, client, delete_on_read=True)

        def refuse(*_: object) -> None:
            raise NotAllowed("no")

        monkeypatch.setattr(functions, "forget", refuse)
        assert (await job.result(timeout=5)).state is State.COMPLETED
    await redis.aclose()
