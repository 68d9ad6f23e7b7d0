"""The client without `await`, against a worker in another loop."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

from producer.batch.service.owner import Terms
from producer.batch.service.serve import serve
from producer.batch.store import FileStore
from producer.events import End, Event, Tokens
from producer.fleet import Fleet
from producer.requests import JobRequest
from producer.sync import SyncFleet, SyncJob
from protocol import errors, store
from protocol.batches import BatchName, BatchStatus
from protocol.settings import Settings
from protocol.states import State
from tests.producer.batch_files import row
from tests.producer.tiny import MODEL, TinyWorker, serving

CHAT = [{"role": "user", "content": "hello there"}]


@pytest.fixture
def served_url(valkey_url: str) -> Iterator[str]:
    """A server with a worker that echoes, run by a thread."""
    loop = asyncio.new_event_loop()
    stop, ready = asyncio.Event(), threading.Event()

    async def serve() -> None:
        redis = store.connect(valkey_url)
        async with serving(TinyWorker(redis)):
            ready.set()
            await stop.wait()
        await redis.aclose()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    yield valkey_url
    loop.call_soon_threadsafe(stop.set)
    thread.join(10)
    loop.close()


@pytest.fixture
def fleet(served_url: str) -> Iterator[SyncFleet]:
    with SyncFleet(served_url, tenant="t", settings=Settings(redis_patience_s=5)) as client:
        yield client


def test_a_script_submits_follows_and_waits(fleet: SyncFleet) -> None:
    fleet.ready(MODEL, timeout=5)
    job = fleet.submit(model=MODEL, messages=CHAT, stream=True)
    events = list(job.follow())
    assert [event.text for event in events if isinstance(event, Tokens)] == ["hello ", "there "]
    assert isinstance(events[-1], End)
    assert job.result(timeout=5).text == "".join(job.text()) == "hello there "
    assert job.info().record.state is State.COMPLETED
    assert job.cancel() is State.COMPLETED
    assert fleet.forget(str(job), events[-1].outcome.attempt)
    with pytest.raises(errors.UnknownJob):
        fleet.result(job.handle)


def test_the_client_takes_a_job_where_it_takes_a_handle(fleet: SyncFleet) -> None:
    fleet.ready(MODEL, timeout=5)
    job = fleet.submit(model=MODEL, messages=CHAT, stream=True)
    assert "".join(fleet.text(job)) == fleet.result(job, timeout=5).text == "hello there "
    end = list(fleet.follow(job))[-1]
    assert isinstance(end, End)
    assert fleet.job(job).record.state is fleet.cancel(job) is State.COMPLETED
    assert fleet.forget(job, end.outcome.attempt)


def test_many_and_their_refusals(fleet: SyncFleet) -> None:
    good, bad = fleet.submit_many([JobRequest(model=MODEL, messages=CHAT), JobRequest(model=MODEL, prompt="")])
    assert isinstance(good, SyncJob)
    assert isinstance(bad, errors.InvalidRequest)
    assert good.result(timeout=5).text == "hello there "
    assert list(fleet.models()) == [MODEL]
    assert fleet.status().shards[0].workers[0].id == "w1"


def test_an_iterator_may_be_left_early(fleet: SyncFleet) -> None:
    job = fleet.submit(model=MODEL, messages=CHAT, stream=True)
    for event in job.follow():
        assert isinstance(event, Tokens)
        break
    assert job.result(timeout=5).text == "hello there "


def test_a_setup_that_is_wrong_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    with pytest.raises(errors.SetupError):
        SyncFleet("nonsense://x")
    assert threading.active_count() == before


def test_closing_twice_is_harmless(served_url: str) -> None:
    client = SyncFleet(served_url)
    client.close()
    client.close()


def test_a_loop_that_ends_amid_a_follow_closes_it_quietly(served_url: str) -> None:
    complaints: list[dict[str, Any]] = []
    followed: list[AsyncGenerator[Event, None]] = []

    async def leave() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
        async with Fleet(served_url) as client:
            job = await client.submit(model=MODEL, messages=CHAT, stream=True)
            # Many, since a loop closes its generators in no order.
            followed.extend(client.follow(job) for _ in range(20))
            await asyncio.gather(*(anext(events) for events in followed))

    asyncio.run(leave())
    assert complaints == []


def test_batches_without_await(served_url: str, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(row("a", "say a"))
    (tmp_path / "store").mkdir()
    settings = Settings(redis_patience_s=5, store=tmp_path / "store")

    async def work(batch_id: str) -> None:
        async with Fleet(served_url, tenant="t", settings=settings) as runner:
            await serve(runner, FileStore(tmp_path / "store"), BatchName("t", batch_id), Terms())

    with SyncFleet(served_url, tenant="t", settings=settings) as fleet:
        batch = fleet.batches.submit(source, metadata={"team": "a"})
        assert fleet.batches.list() == [fleet.batches.get(batch.name.id)] == [batch]
        asyncio.run(work(batch.name.id))
        *_, last = fleet.batches.watch(batch.name.id)
        assert last.status is BatchStatus.COMPLETED
        assert fleet.batches.cancel(batch.name.id) == last
        assert [line["custom_id"] for line in fleet.batches.results(batch.name.id)] == ["a"]
        fleet.batches.delete(batch.name.id)
        with pytest.raises(errors.UnknownBatch):
            fleet.batches.get(batch.name.id)


def test_a_batch_is_run_without_await(fleet: SyncFleet, tmp_path: Path) -> None:
    fleet.ready(MODEL, timeout=5)
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(row(f"r{n}", f"say {n}") + "\n" for n in range(3)))
    with fleet.batches.run(source, target) as batch:
        assert {line["custom_id"] for line in batch} == {"r0", "r1", "r2"}
    summary = batch.summary()
    assert (summary.rows_out, summary.rows_failed, summary.batch_id) == (3, 0, batch.batch_id)
    assert batch.progress
    assert batch.progress.rows_out == 3


def test_a_batch_that_is_run_without_await_fails_and_is_broken_off_as_with_it(fleet: SyncFleet, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(row("a", "say a"))
    with pytest.raises(errors.SetupError), fleet.batches.run(tmp_path / "none", tmp_path / "out.jsonl"):
        pass
    running = fleet.batches.run(source, tmp_path / "out.jsonl")
    with pytest.raises(errors.InvalidRequest):
        running.summary()
    with pytest.raises(ZeroDivisionError), running:
        raise ZeroDivisionError
    assert list(fleet.models()) == [MODEL]
