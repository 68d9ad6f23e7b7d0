"""`durable=True`: a submit returns once the write is safe, or says that this is not known."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis as SyncRedis

from producer.batch import run_batch
from producer.fleet import Fleet
from producer.requests import JobRequest
from protocol import errors, keys
from protocol.call import run, run_sync
from protocol.durability import Barrier, run_all_safely
from protocol.functions import register, submit
from protocol.messages import ModelRecord
from protocol.settings import Settings
from protocol.states import State
from protocol.store import connect
from tests.producer.batch_files import by_id, impatient, row
from tests.producer.tiny import TinyWorker, serving
from tests.support.builders import a_submission
from tests.support.replication import SERVICE, Sentinel, online_replicas
from tests.support.servers import Server, redis7_binary, valkey_binary
from tests.support.waiting import eventually

MODEL = "m"
QUICK = Settings(redis_patience_s=5, durable_timeout_s=0.3)
PATIENT = Settings(redis_patience_s=5, durable_timeout_s=4)


def started(binary: Path, folder: Path, *flags: str, append_only: bool = False) -> Server:
    folder.mkdir()
    server = Server(binary, folder, append_only=append_only, extra=("--repl-diskless-sync-delay", "0", *flags))
    server.start()
    return server


@pytest.fixture(params=["valkey", "redis7"])
def binary(request: pytest.FixtureRequest) -> Path:
    found = valkey_binary() if request.param == "valkey" else redis7_binary()
    if found is None:
        pytest.skip("no redis-server of version 7 or above on the path")
    return found


@pytest.fixture
def pair(binary: Path, tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """A primary and its replica, which keep nothing on disk."""
    primary = started(binary, tmp_path / "primary")
    replica = started(binary, tmp_path / "replica", "--replicaof", "127.0.0.1", str(primary.port))
    primary.load_library()
    primary.wait_until(lambda: online_replicas(primary) == 1)
    yield primary, replica
    replica.kill()
    primary.kill()


@asynccontextmanager
async def a_fleet(server: Server, settings: Settings = QUICK) -> AsyncIterator[Fleet]:
    async with Fleet(server.url, tenant="t", settings=settings) as fleet:
        await run(fleet.redis, register(MODEL, ModelRecord(pool="pool")))
        yield fleet


def calls_of(client: SyncRedis, command: str) -> int:
    """How often the server was asked."""
    stats: Any = client.info("commandstats")
    told = stats.get(f"cmdstat_{command}")
    return int(told["calls"]) if told else 0


async def test_a_replica_has_it_when_the_submit_returns(pair: tuple[Server, Server]) -> None:
    primary, replica = pair
    async with a_fleet(primary, PATIENT) as fleet:
        job = await fleet.submit(model=MODEL, prompt="x", durable=True)
    with replica.client() as client:
        assert client.exists(keys.job(job.handle))


async def test_a_replica_that_does_not_answer_leaves_the_job_submitted(pair: tuple[Server, Server]) -> None:
    primary, replica = pair
    replica.pause()
    async with a_fleet(primary) as fleet:
        with pytest.raises(errors.NotDurable, match=r"pool\.0\.t\.mine is submitted.*It stays submitted"):
            await fleet.submit(model=MODEL, prompt="x", id="mine", durable=True)
        assert (await fleet.job("pool.0.t.mine")).record.state is State.QUEUED
    replica.resume()
    async with a_fleet(primary, PATIENT) as fleet:
        again = await fleet.submit(model=MODEL, prompt="x", id="mine", durable=True)
        assert not again.created
    with replica.client() as client:
        assert client.exists(keys.job(again.handle))


async def test_a_repeat_waits_for_what_it_repeats(pair: tuple[Server, Server]) -> None:
    """`WAIT` counts what its own connection wrote: a repeat that writes nothing would be safe at once."""
    primary, replica = pair
    replica.pause()
    job, again = a_submission("a"), a_submission("a", nonce="another")
    with primary.client() as first:
        run_sync(first, submit(job))
    for repeat in (job, again):
        other = connect(primary.url)
        results, safe = await run_all_safely(other, [submit(repeat)], Barrier(synced=False, replicas=1, timeout_ms=200))
        await other.aclose()
        assert not isinstance(results[0], errors.FleetError)
        assert not results[0].created
        assert not safe


async def test_more_replicas_than_there_are_can_be_asked_for(pair: tuple[Server, Server]) -> None:
    async with a_fleet(pair[0], QUICK.model_copy(update={"durable_replicas": 2})) as fleet:
        with pytest.raises(errors.NotDurable):
            await fleet.submit(model=MODEL, prompt="x", durable=True)


@pytest.fixture
def watched(server: Server, tmp_path: Path) -> Iterator[str]:
    """The URL of a server that a sentinel watches, and that has no replica."""
    folder = tmp_path / "sentinel"
    folder.mkdir()
    sentinel = Sentinel(valkey_binary(), folder, server.port, quorum=1)
    sentinel.start()
    yield f"redis+sentinel://127.0.0.1:{sentinel.port}/{SERVICE}/0"
    sentinel.kill()


async def test_behind_sentinel_the_disk_is_not_enough(watched: str) -> None:
    """Another may lead already: so a primary that hung for a while looks before the sentinels demote it."""
    async with Fleet(watched, settings=QUICK) as fleet:
        await run(fleet.redis, register(MODEL, ModelRecord(pool="pool")))
        with pytest.raises(errors.NotDurable):
            await fleet.submit(model=MODEL, prompt="x", durable=True)


async def test_the_disk_has_it_when_the_submit_returns(server: Server) -> None:
    async with a_fleet(server, PATIENT) as fleet:
        requests = [JobRequest(model=MODEL, prompt=f"x{n}") for n in range(20)]
        jobs = await fleet.submit_many([*requests, JobRequest(model="")], durable=True)
        assert [isinstance(job, errors.FleetError) for job in jobs] == [False] * 20 + [True]
    with server.client() as client:
        assert calls_of(client, "waitaof") == 1


async def test_a_disk_that_is_never_synced_is_not_safe(server: Server) -> None:
    with server.client() as client:
        client.config_set("appendfsync", "no")
    async with a_fleet(server) as fleet:
        with pytest.raises(errors.NotDurable):
            await fleet.submit(model=MODEL, prompt="x", durable=True)


async def test_a_redis_that_cannot_tell_says_what_is_needed(binary: Path, tmp_path: Path) -> None:
    cannot_wait = binary != valkey_binary()  # Redis 7.0 has no WAITAOF
    server = started(binary, tmp_path / "alone", append_only=cannot_wait)
    server.load_library()
    async with a_fleet(server) as fleet:
        with pytest.raises(errors.SetupError, match="It needs a replica, or an append-only file"):
            await fleet.submit(model=MODEL, prompt="x", id="mine", durable=True)
        with pytest.raises(errors.UnknownJob):
            await fleet.job("pool.0.t.mine")
    server.kill()


async def test_a_durable_batch_is_whole(server: Server, tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(row(f"r{n}") + "\n" for n in range(10)))
    async with a_fleet(server, PATIENT) as fleet:
        worker = TinyWorker(fleet.redis)
        await worker.join()
        async with serving(worker):
            summary = await run_batch(fleet, source, target, durable=True)
    assert (summary.rows_out, summary.rows_failed, len(by_id(target))) == (10, 0, 10)
    with server.client() as client:
        assert calls_of(client, "waitaof") == 1


@pytest.mark.parametrize("lost", [0, 1])
async def test_a_durable_batch_asks_until_its_rows_are_safe_or_have_ended(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """Also where Redis has lost rows: while those are asked for, the others' answers are written."""
    impatient(monkeypatch)
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(row(f"r{n}") + "\n" for n in range(10)))
    with server.client() as client:
        client.config_set("appendfsync", "no")
        async with a_fleet(server) as fleet:
            worker = TinyWorker(fleet.redis)
            await worker.join()
            running = asyncio.create_task(run_batch(fleet, source, target, durable=True))
            await eventually(lambda: calls_of(client, "waitaof") >= 2)
            assert not running.done()
            (gone,) = client.keys("tf:{pool.0}:job:*-1") if lost else (b"no such key",)
            client.delete(gone)
            async with serving(worker), asyncio.timeout(20):
                summary = await running
    assert (summary.rows_out, summary.rows_failed, len(by_id(target))) == (10, 0, 10)


def test_the_command_line_asks_for_it(server: Server) -> None:
    with server.client() as client:
        run_sync(client, register(MODEL, ModelRecord(pool="pool")))
        command = [sys.executable, "-m", "tokenfleet", "submit", "x", "--durable", "--redis-url", server.url]
        assert subprocess.run(command, check=False, capture_output=True).returncode == 0
        assert calls_of(client, "waitaof") == 1
