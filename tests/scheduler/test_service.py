"""The service: pools come and go, and it starts and stops in good order."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis
from structlog.testing import capture_logs

from protocol import keys
from protocol.errors import SetupError, StoreUnavailable
from protocol.handle import Shard
from protocol.settings import Settings
from scheduler.metrics import Metrics
from scheduler.service import run_scheduler
from tests.scheduler.stage import QUICK, Stage
from tests.support.servers import free_port
from tests.support.waiting import eventually

OTHER = Shard("other")


@asynccontextmanager
async def a_service(
    url: str, pools: Collection[str] | None = None, settings: Settings = QUICK, metrics: Metrics | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(run_scheduler(settings, redis_url=url, pools=pools, metrics=metrics))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_pools_registered_before_and_after_the_start_are_served(valkey: Redis, valkey_url: str) -> None:
    stage = Stage(valkey)
    await stage.register("pool")
    async with a_service(valkey_url):
        for each in (stage, stage.on(OTHER)):
            await each.register(each.shard.pool)
            await each.join()
            await each.submit()
            assert await each.receives() == ["a"]


async def test_each_shard_of_a_pool_is_served(valkey: Redis, valkey_url: str) -> None:
    stage = Stage(valkey).on(Shard("pool", 1))
    await stage.register("pool", shards=2)
    async with a_service(valkey_url):
        await stage.join()
        await stage.submit()
        assert await stage.receives() == ["a"]


async def test_pools_that_were_not_named_are_left_alone(valkey: Redis, valkey_url: str) -> None:
    stage = Stage(valkey).on(OTHER)
    await stage.register("pool")
    await stage.register("other")
    async with a_service(valkey_url, ["other"]):
        await stage.join()
        await stage.submit()
        assert await stage.receives() == ["a"]
        assert not await valkey.exists(keys.leader(Shard("pool")))


async def test_a_pool_that_is_gone_leaves_no_series(valkey: Redis, valkey_url: str) -> None:
    registry, stage = CollectorRegistry(), Stage(valkey)
    for pool in ("pool", "other"):
        await stage.register(pool)

    def leads(pool: str) -> float | None:
        return registry.get_sample_value("tokenfleet_scheduler_leader", {"pool": pool, "shard": "0"})

    async with a_service(valkey_url, metrics=Metrics(registry, "predictive", {})):
        await eventually(lambda: (leads("pool"), leads("other")) == (1, 1))
        await stage.write("HDEL", keys.MODELS, "model-of-other")
        await eventually(lambda: leads("other") is None)
        assert leads("pool") == 1


async def test_a_stopped_service_leaves_the_lead_free(valkey: Redis, valkey_url: str) -> None:
    stage = Stage(valkey)
    await stage.register("pool")
    patient = QUICK.model_copy(update={"lead_s": 60.0})
    async with a_service(valkey_url, settings=patient):
        await eventually(lambda: valkey.exists(keys.leader(stage.shard)))
    await eventually(lambda: _free(valkey, stage.shard), timeout_s=2)


async def _free(redis: Redis, shard: Shard) -> bool:
    return not await redis.exists(keys.leader(shard))


async def test_a_model_that_cannot_be_read_hides_no_other(valkey: Redis, valkey_url: str) -> None:
    stage = Stage(valkey)
    await stage.write("HSET", keys.MODELS, "broken", "{")
    await stage.register("pool")
    async with a_service(valkey_url):
        await stage.join()
        await stage.submit()
        assert await stage.receives() == ["a"]


async def test_redis_that_is_not_there_is_waited_for_and_then_told() -> None:
    settings = QUICK.model_copy(update={"redis_patience_s": 0.3})
    with capture_logs() as lines, pytest.raises(StoreUnavailable):
        await run_scheduler(settings, redis_url=f"redis://user:secret@127.0.0.1:{free_port()}/0")
    assert [line["event"] for line in lines] == ["waiting_for_redis", "scheduler_stopped"]
    assert "secret" not in str(lines)


async def test_an_unknown_policy_is_told_before_redis_is_asked() -> None:
    with pytest.raises(SetupError):
        await run_scheduler(QUICK.model_copy(update={"policy": "none"}), redis_url="redis://127.0.0.1:1/0")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_process_ends_cleanly_on_a_signal(valkey: Redis, valkey_url: str, number: signal.Signals) -> None:
    stage = Stage(valkey)
    await stage.register("pool")
    code = "from protocol.settings import Settings; from scheduler.process import main; main(Settings.load())"
    environment = os.environ | {"TOKENFLEET_REDIS_URL": valkey_url, "TOKENFLEET_LEAD_S": "60"}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, env=environment, stderr=subprocess.PIPE)
    try:
        await eventually(lambda: valkey.exists(keys.leader(stage.shard)), timeout_s=20)
        process.send_signal(number)
        async with asyncio.timeout(10):
            _, log = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0
    assert b"scheduler_stopped" in log
    assert b"Traceback" not in log
    await eventually(lambda: _free(valkey, stage.shard), timeout_s=2)
