"""Batches in bad times: no room, no time, no notices, no Redis, no patience."""

import asyncio
from pathlib import Path

import pytest
from redis.asyncio import Redis

from producer import routing
from producer.batch import Progress, course, run_batch
from producer.fleet import Fleet
from protocol import errors, keys
from protocol.call import Call, run
from protocol.messages import ModelRecord, Outcome
from protocol.settings import Settings
from protocol.states import Priority, State
from tests.producer.batch_files import by_id, impatient, row, until_queued
from tests.producer.tiny import TinyWorker, serving
from tests.support.builders import tick_as
from tests.support.servers import Server
from tests.support.waiting import eventually


async def test_a_batch_past_its_deadline_expires_row_by_row(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]
) -> None:
    source, target = files
    source.write_text("\n".join(row(f"r{n}") for n in range(10)))
    running = asyncio.create_task(run_batch(fleet, source, target, window=4, deadline=0.3))

    async def expired() -> bool:
        await run(redis, tick_as())  # nobody serves, but the dispatcher keeps the time
        return running.done()

    await eventually(expired)
    summary = await running
    assert (summary.state, summary.rows_out, summary.rows_failed, summary.rows_unfinished) == ("expired", 0, 0, 10)
    assert {line["error"]["code"] for line in by_id(target).values()} == {"batch_expired"}


async def test_a_full_queue_is_waited_for(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]
) -> None:
    source, target = files
    source.write_text("\n".join(row(f"r{n}") for n in range(20)))
    await run(redis, tick_as(limits=dict.fromkeys(Priority, 10)))
    running = asyncio.create_task(run_batch(fleet, source, target))
    await until_queued(redis, 5)  # one tenant's half
    async with serving(worker):
        summary = await running
    assert (summary.rows_out, summary.rows_failed) == (20, 0)
    assert len(by_id(target)) == 20


async def test_a_row_that_the_store_loses_again_and_again_gets_an_error(
    fleet: Fleet,
    worker: TinyWorker,
    redis: Redis,
    files: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    impatient(monkeypatch)
    source, target = files
    source.write_text(row("r0"))
    running = asyncio.create_task(run_batch(fleet, source, target))

    async def lose() -> bool:
        found: list[bytes] = await run(redis, Call(("KEYS", "*y:t:batch-*"), list))
        found += await run(redis, Call(("KEYS", "*b:t:batch-*"), list))
        if found:
            await run(redis, Call(("DEL", *found), int))
        return running.done()

    await eventually(lose)
    assert (await running).rows_failed == 1
    assert by_id(target)["r0"]["error"]["code"] == "lost"


@pytest.mark.parametrize("deadline", [600, None])
@pytest.mark.parametrize("looks", [False, True])
async def test_a_row_that_expires_again_and_again_gets_an_error_that_says_so(
    fleet: Fleet,
    worker: TinyWorker,
    redis: Redis,
    files: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    looks: bool,
    deadline: float | None,
) -> None:
    """Each time within the one wait for news that was begun before it was sent again; or a look sees its end first."""
    if looks:
        impatient(monkeypatch)
    source, target = files
    source.write_text(row("r0"))
    running = asyncio.create_task(run_batch(fleet, source, target, deadline=deadline))

    async def expire() -> bool:
        for attempt in await worker.take():
            await attempt.end(Outcome(state=State.EXPIRED))
        return running.done()

    await eventually(expire)
    assert (await running).rows_failed == 1
    error = by_id(target)["r0"]["error"]
    assert (error["code"], "expired several times" in error["message"]) == ("expired", True)


async def test_a_batch_that_is_broken_off_cancels_its_rows(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]
) -> None:
    source, target = files
    source.write_text("\n".join(row(f"r{n}") for n in range(10)))
    running = asyncio.create_task(run_batch(fleet, source, target))
    await until_queued(redis, 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until_queued(redis, 0)


async def test_a_batch_tells_where_it_stands_while_no_row_ends(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(course, "TELL_S", 0.01)
    source, target = files
    source.write_text(row("r0"))
    news: list[Progress] = []
    running = asyncio.create_task(run_batch(fleet, source, target, on_progress=news.append))
    await eventually(lambda: len(news) > 3)
    assert {one.rows_out for one in news} == {0}
    async with serving(worker):
        assert (await running).rows_out == 1


async def test_rows_wait_for_workers_that_redis_has_forgotten(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restart without its data: an engine may load for minutes before its worker is known again."""
    source, target = files
    source.write_text("\n".join(row(f"r{n}", f"say {n}") for n in range(3)))
    missed, find = asyncio.Event(), routing.Routes.find

    def found(routes: routing.Routes, model: str) -> ModelRecord:
        try:
            return find(routes, model)
        except errors.UnknownModel:
            missed.set()
            raise

    monkeypatch.setattr(routing, "FRESH_S", 0)
    monkeypatch.setattr(routing.Routes, "find", found)
    running = asyncio.create_task(run_batch(fleet, source, target, window=1))
    await until_queued(redis, 1)
    await redis.delete(keys.MODELS)
    for attempt in await worker.take():
        await attempt.echo()
    await missed.wait()
    await worker.join()
    async with serving(worker):
        summary = await running
    assert (summary.rows_out, summary.rows_failed) == (3, 0)


async def test_an_input_that_is_overwritten_while_its_rows_run_sends_none_of_the_others(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]
) -> None:
    """Rows are read from their places: what stands there now may be anything, and of the same length."""
    source, target = files
    whole = "".join(row(f"r{n}", f"say {n}") + "\n" for n in range(4))
    source.write_text(whole)
    running = asyncio.create_task(run_batch(fleet, source, target, window=1))
    await until_queued(redis, 1)
    source.write_text(whole.replace('"r', '"x'))
    for attempt in await worker.take():
        await attempt.echo()
    with pytest.raises(errors.InputChanged, match="while its rows ran"):
        await running
    with pytest.raises(errors.InputChanged, match="is not what it was"):
        await run_batch(fleet, source, target, resume=True)
    source.write_text(whole)
    async with serving(worker):
        summary = await run_batch(fleet, source, target, resume=True)
    assert (summary.rows_out, summary.rows_failed, summary.rows_before) == (4, 0, 1)
    assert set(by_id(target)) == {f"r{n}" for n in range(4)}


async def test_a_batch_lives_through_a_restart_of_redis(server: Server, files: tuple[Path, Path]) -> None:
    source, target = files
    source.write_text("".join(row(f"r{n}", f"say {n}") + "\n" for n in range(30)))
    settings = Settings(redis_url=server.url, redis_patience_s=20)
    async with Fleet(tenant="t", settings=settings) as fleet:
        worker = TinyWorker(fleet.redis)
        await worker.join()
        running = asyncio.create_task(run_batch(fleet, source, target, window=10))
        await until_queued(fleet.redis, 10)
        server.kill(written=True)
        server.start()

        async def serve() -> bool:
            try:
                await worker.join()
                for attempt in await worker.take():
                    await attempt.echo()
            except errors.StoreUnavailable:
                return False
            return running.done()

        await eventually(serve, timeout_s=20)
        assert (await running).rows_failed == 0
    assert len(by_id(target)) == 30
