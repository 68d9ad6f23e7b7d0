"""States, standby and commands of a worker on a real server."""

from functools import partial
from typing import cast

from protocol import reads, watch
from protocol.errors import SetupError
from protocol.functions import Command, command
from protocol.messages import WorkerRecord
from protocol.states import State
from tests.support.builders import SHARD
from tests.support.waiting import eventually
from tests.worker.stage import PuppetEngine, Stage, staged
from worker.engine.base import Capacity


async def tell(stage: Stage, state: str, word: Command) -> WorkerRecord:
    """Send the command to the worker that is in this state; its record once it has answered."""
    worker = await stage.worker(state)
    entry_id = stage.driver.run(command(SHARD, worker.id, word))

    def answered() -> WorkerRecord | None:
        record = stage.driver.run(reads.worker_record(SHARD, worker.id))
        return record if record and record.report.answered == entry_id else None

    found = await eventually(answered)
    assert found is not None
    return found


async def test_it_joins_at_once_and_registers_once_the_engine_is_up(valkey_url: str) -> None:
    engine = PuppetEngine()
    engine.may_start.clear()
    async with staged(valkey_url, engine) as stage:
        await stage.worker("loading")
        assert stage.driver.run(reads.models()) == {}
        engine.may_start.set()
        record = await stage.worker("active")
        assert list(record.report.state_s) == ["starting", "loading", "active"]
        assert "m" in stage.driver.run(reads.models())


async def test_a_standby_takes_no_jobs_until_it_is_promoted(valkey_url: str) -> None:
    async with staged(valkey_url, standby=True) as stage:
        worker = await stage.worker("warm")
        stage.driver.lead()
        handle = stage.driver.submit().handle
        assert stage.driver.assign(handle, worker.id) == "worker"
        record = await tell(stage, "warm", "promote")
        assert (record.report.refusal, record.id) == ("", worker.id)
        await stage.worker("active")
        assert isinstance(stage.driver.assign(handle, worker.id), int)
        await stage.engine.flight("a")


async def test_sleep_and_wake(valkey_url: str) -> None:
    async with staged(valkey_url, standby=True) as stage:
        await tell(stage, "warm", "sleep")
        await stage.worker("asleep")
        assert stage.engine.naps == 1
        assert (await tell(stage, "asleep", "sleep")).report.refusal == "its engine is not up"
        await tell(stage, "asleep", "wake")
        assert (await tell(stage, "warm", "wake")).report.refusal == "it is not asleep"
        await tell(stage, "warm", "sleep")
        await tell(stage, "asleep", "promote")
        assert (stage.engine.naps, stage.engine.asleep) == (2, False)
        record = await stage.worker("active")
        assert set(record.report.state_s) == {"starting", "loading", "warm", "asleep", "active"}


async def test_an_active_worker_finishes_what_it_runs_before_it_sleeps(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        _, flight = await stage.begin()
        worker = await stage.worker()
        stage.driver.run(command(SHARD, worker.id, "sleep"))
        await stage.worker("warm")
        assert stage.engine.naps == 0
        flight.end()
        await stage.worker("asleep")
        assert stage.engine.naps == 1


async def test_an_engine_that_refuses_sleep_says_why_and_the_worker_goes_on(valkey_url: str) -> None:
    engine = PuppetEngine()
    engine.insomnia = "it has no sleep mode"
    async with staged(valkey_url, engine) as stage:
        assert (await tell(stage, "active", "sleep")).report.refusal == "it has no sleep mode"
        await stage.worker("active")


async def test_prefixes_and_adapters_of_the_engine_are_told(valkey_url: str) -> None:
    class Adapted(PuppetEngine):
        async def start(self) -> Capacity:
            await super().start()
            return Capacity(4, context_tokens=1000, models=("m", "m-for-lawyers"))

    async with staged(valkey_url, Adapted()) as stage:
        record = await stage.worker()
        assert record.models == ("m", "m-for-lawyers")
        assert "m-for-lawyers" in stage.driver.run(reads.models())


async def test_prefix_changes_reach_redis(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        worker = await stage.worker()
        many = frozenset(f"h{n}" for n in range(1200))
        for held in (many, frozenset({"h1", "new"}), frozenset[str]()):
            stage.engine.held_prefixes = held
            await eventually(partial(tells, stage, worker.id, held))


def tells(stage: Stage, worker: str, prefixes: frozenset[str]) -> bool:
    return stage.driver.run(watch.prefixes(SHARD, worker)) == prefixes


async def test_an_unknown_command_is_refused(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        record = await tell(stage, "active", cast("Command", "dance"))
        assert record.report.refusal == "this worker does not know the command"


async def test_an_engine_that_can_t_start_ends_the_worker(valkey_url: str) -> None:
    class Broken(PuppetEngine):
        async def start(self) -> Capacity:
            raise SetupError("no such model")

    async with staged(valkey_url, Broken()) as stage:
        await eventually(stage.task.done)
        assert isinstance(stage.task.exception(), SetupError)
        assert stage.driver.run(reads.leases(SHARD)) == {}


async def test_rest_lets_it_finish_and_stand_by_again(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        handle, flight = await stage.begin()
        record = await tell(stage, "active", "rest")
        assert (record.state, record.report.refusal, record.report.reserve) == ("warm", "", False)
        late = stage.driver.submit("late").handle
        assert stage.driver.assign(late, record.id) == "worker"
        flight.end()
        await stage.reaches(handle, State.COMPLETED)
        await tell(stage, "warm", "promote")
        assert isinstance(stage.driver.assign(late, record.id), int)
        await stage.engine.flight("late")


async def test_one_that_was_started_to_stand_by_stays_a_reserve(valkey_url: str) -> None:
    async with staged(valkey_url, standby=True) as stage:
        assert (await tell(stage, "warm", "promote")).report.reserve
        assert (await stage.worker("active")).report.reserve
