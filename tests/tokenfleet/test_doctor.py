"""`tokenfleet doctor`: each finding on a real server that is set up wrongly, and none on one that is set up well."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisGone
from redis.exceptions import ResponseError

from protocol import functions, library
from protocol.settings import Settings
from tests.support.driver import Driver
from tests.support.servers import Server, free_port, redis7_binary
from tests.tokenfleet.doctoring import examined, levels, running, well
from tokenfleet.cli import main as cli
from tokenfleet.doctor.examine import examine
from tokenfleet.doctor.view import as_json

EVERYWHERE = "*"
OF_THE_MACHINE = ("reach", "store")
"""How busy this machine is, and how full its disk, may be a warning and is no test's business."""
Change = Callable[[Driver], object]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("good")) as server:
        yield server


@pytest.fixture
def driver(good: Server) -> Iterator[Driver]:
    """On the well set-up server, as it was before each test."""
    with good.client() as client:
        client.flushall()
        yield Driver(client)


async def test_a_good_set_up_has_nothing_to_change(good: Server, driver: Driver, tmp_path: Path) -> None:
    well(driver)
    settings = Settings(redis_url=good.url, store=tmp_path)
    findings = await examined(good.url, settings=settings)
    assert [finding for finding in findings if finding.level == "fail"] == []
    assert [finding for finding in findings if finding.level != "ok" and finding.check not in OF_THE_MACHINE] == []
    checks = {
        "reach",
        "clock",
        "network",
        "door",
        "version",
        "primary",
        "memory",
        "eviction",
        "aof",
        "fsync",
        "buffers",
    }
    assert {finding.check for finding in findings} == checks | {
        *("acl", "library", "leader", "standby", "workers", "engine", "models", "dead", "store"),
    }
    assert len(await redis_keys(driver)) > 0
    assert as_json(findings)["ok"] is True


async def redis_keys(driver: Driver) -> list[bytes]:
    return list(driver.redis.scan_iter())


def config(*words: str) -> Change:
    return lambda driver: driver.redis.execute_command("CONFIG", "SET", *words)  # type: ignore[no-untyped-call]  # redis-py 5


def dead(driver: Driver) -> None:
    handle, attempt = driver.running("dead")
    for _ in range(3):
        driver.run(functions.requeue(handle, attempt, "w1", "strike"))
        driver.lead()
        driver.join(join=False)
        if driver.job(handle).state.terminal:
            return
        attempt = driver.restarted(handle)


WRONG: dict[str, tuple[Change, str, str, str]] = {
    "no limit of memory": (config("maxmemory", "0"), "memory", "warn", "maxmemory"),
    "full": (config("maxmemory", "1mb"), "memory", "fail", "maxmemory"),
    "evicts": (config("maxmemory-policy", "allkeys-lru"), "eviction", "fail", "noeviction"),
    "no append-only file": (config("appendonly", "no"), "aof", "fail", "appendonly yes"),
    "never syncs": (config("appendfsync", "no"), "fsync", "warn", "everysec"),
    "small buffers": (config("client-output-buffer-limit", "pubsub 8mb 1mb 60"), "buffers", "warn", "64mb"),
    "boundless buffers": (config("client-output-buffer-limit", "pubsub 0 0 0"), "buffers", "warn", "64mb"),
    "no library": (lambda d: d.redis.function_flush(), "library", "fail", "scheduler"),
    "no leader": (lambda d: d.redis.delete("tf:{pool.0}:leader"), "leader", "fail", "tokenfleet scheduler"),
    "no standby": (lambda d: d.redis.hdel("tf:{pool.0}:clock", "standby"), "standby", "warn", "second scheduler"),
    "no worker": (lambda d: d.redis.delete("tf:{pool.0}:workers"), "workers", "warn", "Start one"),
    "no worker for jobs": (
        lambda d: (d.submit(), d.redis.delete("tf:{pool.0}:workers")),
        *("workers", "fail", "Start one"),
    ),
    "all stand by": (lambda d: (d.submit(), d.join(join=False, state="warm")), "workers", "fail", "promote"),
    "a silent worker": (lambda d: d.redis.hset("tf:{pool.0}:worker:w1", "at", "1"), "silent", "warn", "its host"),
    "a lost worker": (lambda d: d.redis.zadd("tf:{pool.0}:workers", {"w1": 1}), "silent", "warn", "its host"),
    "a dead engine": (lambda d: d.join(join=False, state="unhealthy"), "engine", "fail", "its log"),
    "an engine that loads": (lambda d: d.join(join=False, state="loading"), "engine", "warn", "its log"),
    "a model without a worker": (
        lambda d: d.redis.hset("tf:{pool.0}:worker:w1", "models", '["other"]'),
        *("models", "warn", "Start a worker"),
    ),
    "dead jobs": (dead, "dead", "warn", "tokenfleet dead list"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_each_fault_is_found_and_says_what_to_change(good: Server, driver: Driver, name: str) -> None:
    change, check, level, advice = WRONG[name]
    names = ("maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "client-output-buffer-limit")
    before = {one: told[one] for one in names if isinstance(told := driver.redis.config_get(one), dict)}
    well(driver)
    try:
        change(driver)
        findings = await examined(good.url)
    finally:
        for one, value in before.items():
            driver.redis.config_set(one, value)
    told = [finding for finding in findings if (finding.check, finding.level) == (check, level)]
    assert told, findings
    assert advice in told[0].advice
    assert as_json(findings)["ok"] is (level != "fail")


async def test_an_old_library_is_told_from_none(good: Server, driver: Driver) -> None:
    well(driver)
    older = f"{library.source()}\n-- older"
    driver.redis.function_load(older, replace=True)
    (found,) = [finding for finding in await examined(good.url) if finding.check == "library"]
    assert (found.level, "another version" in found.said) == ("fail", True)


async def test_a_redis_that_is_away_is_a_finding(tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    found = levels(await examined(url, settings=Settings(redis_url=url, store=tmp_path)))
    assert found.pop("store") != "fail"
    assert found == {"network": "ok", "reach": "fail"}


def test_the_command_fails_when_redis_is_away() -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    result = CliRunner().invoke(cli, ["doctor", "--json", "--redis-url", url])
    assert (result.exit_code, json.loads(result.output)["ok"]) == (1, False)


async def test_a_clock_that_is_off_is_found(good: Server, driver: Driver) -> None:
    well(driver)
    for seconds, level in ((0.5, "ok"), (-5.0, "warn"), (5.0, "warn"), (600.0, "fail"), (-600.0, "fail")):

        def wall_s(seconds: float = seconds) -> float:
            return time.time() + seconds

        assert levels(await examined(good.url, wall_s=wall_s))["clock"] == level, seconds


async def test_an_open_door_is_found(tmp_path: Path) -> None:
    with running(tmp_path, "--bind", EVERYWHERE, "--protected-mode", "no") as server:
        assert levels(await examined(server.url))["door"] == "fail"
    with running(tmp_path, "--bind", EVERYWHERE, "--protected-mode", "yes") as server:
        assert levels(await examined(server.url))["door"] == "ok"


async def test_a_replica_is_found_and_asked_for_nothing_that_only_a_primary_does(
    good: Server, driver: Driver, tmp_path: Path
) -> None:
    well(driver)
    with running(tmp_path, "--replicaof", f"127.0.0.1 {good.port}", append_only=False) as replica:
        findings = await examined(replica.url)
    assert [finding.check for finding in findings if finding.level == "fail"] == ["primary", "aof"]


class Old(Redis):
    """Says of a new server what Redis 6.2 says."""

    async def execute_command(self, *words: Any, **how: Any) -> Any:
        if words[0] == "INFO" and len(words) > 2:
            raise ResponseError("syntax error")
        if words[0] == "FUNCTION":
            raise ResponseError("unknown command `FUNCTION`, with args beginning with: `LIST`, ")
        answer = await super().execute_command(*words, **how)  # type: ignore[no-untyped-call]  # redis-py 5
        return {**answer, "valkey_version": "6.2.14", "redis_version": "6.2.14"} if words[0] == "INFO" else answer


async def test_a_server_before_functions_is_too_old(good: Server, driver: Driver) -> None:
    well(driver)
    redis = Old.from_url(good.url)
    findings = {finding.check: finding for finding in await examine(redis, Settings(redis_url=good.url))}
    await redis.aclose()
    for check in ("version", "library"):
        assert (findings[check].level, "7.0 or later" in findings[check].advice) == ("fail", True)
    assert "6.2.14" in findings["version"].said
    assert findings["leader"].level == "ok"


async def test_what_was_found_before_redis_went_away_is_kept(good: Server, driver: Driver) -> None:
    well(driver)

    class Leaving(Redis):
        async def execute_command(self, *words: Any, **how: Any) -> Any:
            if words[0] == "FUNCTION":
                raise RedisGone
            return await super().execute_command(*words, **how)  # type: ignore[no-untyped-call]  # redis-py 5

    redis = Leaving.from_url(good.url)
    findings = await examine(redis, Settings(redis_url=good.url))
    await redis.aclose()
    assert [finding.check for finding in findings if finding.level == "fail"] == ["reach"]
    assert {"version", "memory", "aof", "acl", "store"} <= {finding.check for finding in findings}


async def test_redis_before_7_2_can_not_wait_for_its_disk(tmp_path: Path) -> None:
    binary = redis7_binary()
    if binary is None:
        pytest.skip("no redis-server of version 7 or above on the path")
    with running(tmp_path, binary=binary) as server, server.client() as client:
        version = tuple(map(int, client.info("server")["redis_version"].split(".")[:2]))
        assert levels(await examined(server.url))["version"] == ("warn" if version < (7, 2) else "ok")


async def test_a_server_without_a_fleet_says_how_to_begin(good: Server, driver: Driver) -> None:
    del driver
    findings = {finding.check: finding for finding in await examined(good.url)}
    assert (findings["workers"].level, "no worker ever" in findings["workers"].said) == ("warn", True)
    assert "tokenfleet worker --model" in findings["workers"].advice
    assert not {"leader", "standby", "engine", "models"} & findings.keys()
