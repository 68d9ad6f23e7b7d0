"""The test support itself: what the other tests lean on."""

from redis.asyncio import Redis

from protocol import functions, reads
from protocol.call import run
from tests.conftest import Backend
from tests.support import snapshot
from tests.support.builders import SHARD, a_submission, completed, join_worker, tick_as
from tests.support.driver import Driver
from tests.support.invariant import violations
from tests.support.servers import Server
from tests.support.store_clock import StoreClock


async def test_a_whole_life_leaves_nothing(redis: Redis, backend: Backend) -> None:
    job = a_submission()
    await run(redis, functions.submit(job))
    await run(redis, join_worker())
    await run(redis, tick_as())
    (entry,) = await run(redis, reads.lane_head(SHARD, job.priority, 1))
    assert await run(redis, functions.assign(SHARD, "boss", [functions.Move(entry.member, "w1")])) == [1]
    assert await run(redis, functions.start(job.handle, 1, "w1"))
    assert not violations(snapshot.take(backend.sync))
    assert (await run(redis, functions.finish(completed(job.handle, 1)))).accepted
    assert not violations(snapshot.take(backend.sync))


def test_time_can_be_turned(driver: Driver, store_clock: StoreClock) -> None:
    job = driver.submit(deadline_ms=1000)
    driver.lead()
    store_clock.advance(1001)
    assert driver.run(tick_as()).expired == 1
    driver.check()
    store_clock.advance(60_001)
    assert driver.run(reads.job_record(job.handle)) is None


def test_a_leak_is_found(backend: Backend) -> None:
    backend.sync.set("tf:{pool.0}:result:t:a", "x")
    backend.sync.set("tf:{pool.0}:leader", "x", ex=100)
    assert snapshot.take(backend.sync).leaks() == ["tf:{pool.0}:result:t:a"]
    backend.sync.flushall()


def test_a_server_comes_back_on_its_port(server: Server) -> None:
    with server.client() as client:
        client.set("key", "value", ex=100)
    server.restart()
    server.pause()
    server.resume()
    with server.client() as client:
        assert client.get("key") == b"value"
    server.kill()
    server.start()
