"""Redis behind Sentinel: a failover is followed by every role, and nobody is restarted."""

import asyncio
from collections.abc import Callable

import pytest

from producer.events import Tokens
from producer.fleet import Fleet
from producer.jobs import Job
from protocol.call import Call, run, run_sync
from protocol.errors import StoreUnavailable
from protocol.handle import Shard
from protocol.settings import Settings
from protocol.states import State
from protocol.store import connect, connect_sync
from protocol.watch import hint
from tests.ha.roles import MODEL, Cast, read
from tests.support.replication import Group
from tests.support.servers import Server
from tests.support.waiting import eventually

FOLLOWED_S = 10.0
PUT = Call(("SET", "a-key", "1", "PX", 60_000), bool)
WHO = Call(("CLIENT", "ID"), int)


def kill(group: Group) -> None:
    group.primary.kill()


def promote(group: Group) -> None:
    group.sentinels[0].failover()


async def begun(job: Job) -> None:
    """Wait for a job's first token."""
    async for event in job.follow():
        if isinstance(event, Tokens):
            return


@pytest.mark.parametrize(("group", "fail_over"), [("redis7", kill), ("valkey", promote)], indirect=["group"])
async def test_all_roles_follow_a_failover_without_a_restart(
    group: Group, cast: Cast, fail_over: Callable[[Group], None], record_property: Callable[[str, object], None]
) -> None:
    roles = [cast.scheduler(group.url), cast.worker(group.url, "--sim-speed", "0.05")]
    async with Fleet(group.url) as fleet:
        await fleet.ready(MODEL)
        job = await fleet.submit(model=MODEL, prompt="a long one", stream=True, max_tokens=40, durable=True)
        follower = asyncio.create_task(read(fleet, job))
        await begun(job)
        old = group.primary
        begin = asyncio.get_running_loop().time()
        fail_over(group)
        await eventually(lambda: group.primary is not old, timeout_s=FOLLOWED_S)
        later = await fleet.submit(model=MODEL, prompt="a short one", max_tokens=1)
        await begun(later)
        seconds = asyncio.get_running_loop().time() - begin
        record_property("seconds until a new job spoke", round(seconds, 2))
        assert seconds <= FOLLOWED_S
        outcome = await job.result(timeout=30)
        assert outcome.state is State.COMPLETED
        assert await follower == outcome.text
    assert all(role.running for role in roles)


async def test_a_client_leaves_a_server_that_became_a_replica(server: Server, valkey_url: str) -> None:
    async_client, client = connect(server.url), connect_sync(server.url)
    with server.client() as operator:
        before = await run(async_client, WHO), run_sync(client, WHO)
        operator.replicaof(*valkey_url.removeprefix("redis://").removesuffix("/0").split(":"))
        with pytest.raises(StoreUnavailable, match="read-only replica"):
            await run(async_client, PUT)
        with pytest.raises(StoreUnavailable, match="read-only replica"):
            run_sync(client, PUT)
        operator.replicaof("NO", "ONE")
    assert await run(async_client, PUT)
    assert run_sync(client, PUT)
    after = await run(async_client, WHO), run_sync(client, WHO)
    assert before[0] != after[0]
    assert before[1] != after[1]
    await async_client.aclose()
    client.close()


async def test_a_read_that_waits_while_its_server_becomes_a_replica_is_tried_again(
    server: Server, valkey_url: str
) -> None:
    client = connect(server.url)
    waiting = asyncio.create_task(run(client, hint(Shard("pool"), 5_000)))
    with server.client() as operator:
        await eventually(lambda: operator.info("clients")["blocked_clients"] == 1)
        operator.replicaof(*valkey_url.removeprefix("redis://").removesuffix("/0").split(":"))
        with pytest.raises(StoreUnavailable, match="failing over"):
            await waiting
        operator.replicaof("NO", "ONE")
    await client.aclose()


async def test_a_primary_without_its_replicas_is_one_that_is_away(server: Server) -> None:
    """`min-replicas-to-write` is what keeps a cut-off primary from taking jobs that are lost with it."""
    client = connect(server.url)
    with server.client() as operator:
        operator.config_set("min-replicas-to-write", 1)
        with pytest.raises(StoreUnavailable, match="too few replicas"):
            await run(client, PUT)
        operator.config_set("min-replicas-to-write", 0)
    assert await run(client, PUT)
    await client.aclose()


@pytest.mark.parametrize("group", ["valkey"], indirect=True)
async def test_silent_sentinels_are_passed_over(group: Group) -> None:
    group.sentinels[0].pause()
    group.sentinels[1].kill()
    async_client, client = connect(group.url), connect_sync(group.url)
    assert await run(async_client, PUT)
    assert run_sync(client, PUT)
    await async_client.aclose()
    client.close()


async def test_a_service_that_no_sentinel_knows_is_a_redis_that_is_away() -> None:
    async with Fleet("redis+sentinel://127.0.0.1:1/nobody", settings=Settings(redis_patience_s=0)) as fleet:
        with pytest.raises(StoreUnavailable):
            await fleet.models()
