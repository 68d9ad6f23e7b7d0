"""Redis goes away and comes back, or was never there."""

import asyncio
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from structlog.testing import capture_logs

from protocol import reads
from protocol.call import Call, run_sync
from protocol.errors import LibraryMissing, SetupError, StoreUnavailable
from protocol.functions import register
from protocol.handle import Handle
from protocol.messages import ModelRecord
from protocol.settings import Settings
from protocol.states import State
from tests.support.builders import SHARD
from tests.support.servers import Server, free_port
from tests.support.waiting import eventually
from tests.worker.stage import FAST, PuppetEngine, Stage, staged
from worker import startup
from worker.engine.base import Capacity, EngineDead
from worker.options import WorkerOptions
from worker.service import run_worker
from worker.session import Ending
from worker.startup import wait_for_store
from worker.stop import StopSignals

BRIEF = FAST.model_copy(update={"redis_patience_s": 0.2})


def options(engine: PuppetEngine | None = None) -> WorkerOptions:
    return WorkerOptions(engine or PuppetEngine(), ("m",), pool=SHARD.pool)


async def test_a_killed_and_restarted_redis_loses_and_doubles_no_frame(server: Server) -> None:
    words = [f"w{n} " for n in range(60)]
    async with staged(server.url) as stage:
        handle, flight = await stage.begin()
        before = await stage.worker()
        for number, text in enumerate(words[:20], start=1):
            flight.say(text)
            await eventually(logged(stage, handle, "".join(words[:number])))
        with capture_logs() as lines:
            server.kill()
            for count, text in enumerate(words[20:25], start=1):
                flight.say(text)
                await eventually(failures(lines, count))
        flight.say(*words[25:40])
        server.start()
        flight.say(*words[40:])
        flight.end()
        await stage.reaches(handle, State.COMPLETED)
        frames = stage.driver.log(handle)
        assert stage.log_text(handle) == "".join(words) == stage.outcome(handle).text
        assert [frame.seq for frame in frames] == list(range(1, len(frames) + 1))
        assert len({frame.attempt for frame in frames}) == 1
        assert (await stage.worker()).id == before.id


def logged(stage: Stage, handle: Handle, text: str) -> Callable[[], bool]:
    return lambda: stage.log_text(handle) == text


def failures(lines: Sequence[MutableMapping[str, Any]], count: int) -> Callable[[], bool]:
    """The outbox has tried in vain so often."""
    return lambda: sum(line["event"] == "write_failed" for line in lines) >= count


async def test_an_outage_longer_than_the_lease_aborts_everything_without_a_strike(server: Server) -> None:
    short = FAST.model_copy(update={"lease_s": 1.0})
    async with staged(server.url, settings=short) as stage:
        handle, flight = await stage.begin()
        old = await stage.worker()
        server.kill()
        await eventually(lambda: flight.closed, timeout_s=1.5)
        server.start()
        new = await stage.worker(but=old.id)
        job = await stage.reaches(handle, State.QUEUED)
        assert job.strikes == 0
        assert stage.driver.run(reads.leases(SHARD)).keys() == {new.id}
        await stage.assign_again(handle)
        again = await stage.engine.flight("a")
        again.say("x")
        again.end()
        await stage.reaches(handle, State.COMPLETED)


async def test_a_redis_that_freezes_is_waited_out(server: Server) -> None:
    async with staged(server.url) as stage:
        handle, flight = await stage.begin()
        server.pause()
        flight.say("x")
        flight.end()
        await eventually(lambda: flight.closed)
        server.resume()
        await stage.reaches(handle, State.COMPLETED)
        assert stage.log_text(handle) == "x"


async def test_a_drain_ends_in_time_though_redis_is_away(server: Server) -> None:
    hasty = FAST.model_copy(update={"drain_s": 0.1})
    async with staged(server.url, settings=hasty) as stage:
        _, flight = await stage.begin()
        server.kill()
        stage.stop.signal()
        assert await asyncio.wait_for(stage.task, 6) is Ending.DRAINED
        assert flight.closed
        server.start()


async def test_without_a_redis_the_worker_gives_up_after_its_patience() -> None:
    url = f"redis://127.0.0.1:{free_port()}"
    with pytest.raises(StoreUnavailable):
        await run_worker(BRIEF, options(), redis_url=url, stop=StopSignals())


async def test_a_signal_ends_the_wait_for_redis() -> None:
    stop = StopSignals()
    url = f"redis://127.0.0.1:{free_port()}"
    waiting = asyncio.create_task(run_worker(Settings(), options(), redis_url=url, stop=stop))
    stop.signal()
    assert await asyncio.wait_for(waiting, 2) is Ending.DRAINED


async def test_a_missing_library_is_waited_for(server: Server) -> None:
    with server.client() as client:
        run_sync(client, Call(("FUNCTION", "FLUSH"), bool))
    with pytest.raises(LibraryMissing):
        await run_worker(BRIEF, options(), redis_url=server.url, stop=StopSignals())
    async with staged(server.url) as stage:
        server.load_library()
        await stage.worker()


@pytest.mark.parametrize(("soon_s", "told"), [(5.0, []), (0.0, ["waiting_for_library"])])
async def test_an_operator_is_warned_where_nobody_loads_the_library(
    server: Server, monkeypatch: pytest.MonkeyPatch, soon_s: float, told: list[str]
) -> None:
    """And not each time when all start together."""
    monkeypatch.setattr(startup, "LIBRARY_SOON_S", soon_s)
    with server.client() as client:
        run_sync(client, Call(("FUNCTION", "FLUSH"), bool))
    with pytest.raises(LibraryMissing), capture_logs() as lines:
        await run_worker(BRIEF, options(), redis_url=server.url, stop=StopSignals())
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == told


async def test_a_library_that_is_flushed_and_loaded_again_costs_nothing(server: Server) -> None:
    async with staged(server.url) as stage:
        handle, flight = await stage.begin()
        stage.driver.run(Call(("FUNCTION", "FLUSH"), bool))
        flight.say("x")
        flight.end()
        await eventually(lambda: flight.closed)
        server.load_library()
        await stage.reaches(handle, State.COMPLETED)


async def test_a_model_of_another_pool_is_a_setup_error(valkey_url: str) -> None:
    with Redis.from_url(valkey_url) as client:
        run_sync(client, register("m", ModelRecord(pool="other")))
    with pytest.raises(SetupError, match="other"):
        await run_worker(FAST, options(), redis_url=valkey_url, stop=StopSignals())


async def test_an_engine_that_does_not_come_up_is_a_setup_error(valkey_url: str) -> None:
    class Broken(PuppetEngine):
        async def start(self) -> Capacity:
            raise EngineDead("no such server")

    with pytest.raises(SetupError, match="no such server"):
        await run_worker(FAST, options(Broken()), redis_url=valkey_url, stop=StopSignals())


async def test_an_engine_that_can_t_be_started_again_ends_the_worker(valkey_url: str) -> None:
    class Fragile(PuppetEngine):
        async def start(self) -> Capacity:
            if self.starts:
                raise SetupError("its model is gone")
            return await super().start()

    async with staged(valkey_url, Fragile()) as stage:
        handle, _ = await stage.begin()
        stage.engine.die()
        with pytest.raises(SetupError, match="gone"):
            await stage.task
        assert stage.driver.job(handle).state is State.QUEUED
        assert stage.driver.run(reads.leases(SHARD)) == {}


async def test_an_attempt_that_comes_back_after_its_end_is_given_back(server: Server) -> None:
    """Redis lost how it ended: its log may hold the old text, so the same attempt must not speak again."""
    async with staged(server.url) as stage:
        handle, flight = await stage.begin()
        flight.say("x")
        await eventually(logged(stage, handle, "x"))
        client = stage.driver.redis
        before: dict[bytes, Any] = {key: client.dump(key) for key in client.scan_iter()}
        flight.end()
        await stage.reaches(handle, State.COMPLETED)
        for key, value in before.items():
            client.restore(key, 0, value, replace=True)
        client.client_kill_filter(_type="normal", skipme=True)
        job = await stage.reaches(handle, State.QUEUED)
        assert (job.history[-1].fault, job.history[-1].why) == ("none", "the store lost how it ended")


async def test_a_connection_that_breaks_while_the_library_is_waited_for_ends_nothing(valkey: AsyncRedis) -> None:
    class Shaky:
        calls = 0

        async def execute_command(self, *command: Any) -> Any:
            self.calls += 1
            if self.calls == 2:
                raise ConnectionResetError
            return await valkey.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py 5 is untyped here

    shaky = Shaky()
    await wait_for_store(shaky, "redis://shaky", SHARD, "nobody", 5.0)  # type: ignore[arg-type]  # all that it calls
    assert shaky.calls == 3
