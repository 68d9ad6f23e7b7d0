"""The real roles, each under its own user: nothing that they try is refused on the way."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from producer.batch import run_batch
from producer.batch.store import FileStore
from producer.events import End, Tokens
from producer.fleet import Fleet
from protocol.batches import BatchStatus
from protocol.errors import NotAllowed, UnknownJob
from protocol.settings import Settings
from protocol.states import State
from tests.access.fleet import denials, url_of
from tests.journey.conftest import MODEL, scheduler, worker
from tests.support.servers import Server
from tokenfleet.runner.service import run_runner
from worker.engine.options import EngineOptions
from worker.engine.registry import create_engine
from worker.options import WorkerOptions
from worker.service import run_worker
from worker.stop import StopSignals

SETTINGS = Settings(redis_patience_s=5)


def client(server: Server, user: str, tenant: str) -> Fleet:
    return Fleet(url_of(server, user), settings=SETTINGS.model_copy(update={"tenant": tenant}))


@asynccontextmanager
async def nothing_is_refused(server: Server) -> AsyncIterator[None]:
    """Also not where the code would go on all the same."""
    try:
        yield
    finally:
        assert denials(server) == []


def rows(folder: Path) -> Path:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 3}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
    (folder / "in.jsonl").write_text("".join(json.dumps(line | {"custom_id": f"r{n}"}) + "\n" for n in range(5)))
    return folder / "in.jsonl"


async def test_a_worker_whose_label_its_user_does_not_fit_is_told(guarded_server: Server) -> None:
    """A label with a space is fine where no user is kept to it; here none can be."""
    async with scheduler(url_of(guarded_server, "scheduler")):
        options = WorkerOptions(engine=create_engine("sim", EngineOptions()), models=(MODEL,), label="my worker")
        url = url_of(guarded_server, "worker-worker-1")
        with pytest.raises(NotAllowed, match="--label alone: 1 to 64 of a-z"):
            await run_worker(SETTINGS, options, redis_url=url, stop=StopSignals())


async def test_every_role_does_its_work(guarded_server: Server, tmp_path: Path) -> None:
    server = guarded_server
    async with (
        nothing_is_refused(server),
        scheduler(url_of(server, "scheduler")),
        worker(url_of(server, "worker-worker-1"), "worker-1"),
        client(server, "producer-acme", "acme") as producer,
        client(server, "subscriber-acme", "acme") as subscriber,
        Fleet(url_of(server, "metrics"), settings=SETTINGS) as metrics,
        Fleet(url_of(server, "gateway"), settings=SETTINGS) as gateway,
    ):
        await metrics.ready(MODEL, 20)
        job = await producer.submit(model=MODEL, prompt="hello", stream=True, max_tokens=20, id="mine")
        events = [event async for event in subscriber.follow(str(job))]
        assert isinstance(events[-1], End)
        assert any(isinstance(event, Tokens) for event in events)
        assert (await subscriber.result(str(job))).state is State.COMPLETED
        assert (await subscriber.job(str(job))).record.state is State.COMPLETED
        assert not (await producer.submit(model=MODEL, prompt="hello", stream=True, max_tokens=20, id="mine")).created
        later = await producer.submit(model=MODEL, prompt="later", delay=3600)
        assert (await metrics.status()).shards[0].due == 1
        assert await later.cancel() is State.DELAYED
        summary = await run_batch(producer, rows(tmp_path), tmp_path / "out.jsonl")
        assert (summary.rows_out, summary.rows_failed) == (5, 0)
        assert await producer.forget(job, (await job.info()).record.attempt)
        through = await gateway.submit(model=MODEL, prompt="from outside", tenant="evil", stream=True, max_tokens=5)
        assert "".join([text async for text in through.text()])
        # The answer for another tenant's job is the one for a job that never was.
        for handle in (str(through), str(through)[:-1] + "~"):
            with pytest.raises(UnknownJob):
                await producer.result(handle, timeout=1)


@asynccontextmanager
async def batch_runner(server: Server, folder: Path) -> AsyncIterator[None]:
    """`tokenfleet batch-runner`, as its user; its batches are handed over at the end."""
    settings = SETTINGS.model_copy(update={"redis_url": url_of(server, "runner"), "webhook_url": "http://127.0.0.1:1/"})
    running = asyncio.create_task(run_runner(settings, FileStore(folder), 2))
    try:
        async with asyncio.timeout(30):
            yield
    finally:
        running.cancel()
        ended = await asyncio.gather(running, return_exceptions=True)
        assert [error for error in ended if not isinstance(error, asyncio.CancelledError)] == []


async def test_a_runner_runs_the_batches_of_all_tenants(guarded_server: Server, tmp_path: Path) -> None:
    server, store = guarded_server, tmp_path / "store"
    store.mkdir()
    async with (
        nothing_is_refused(server),
        scheduler(url_of(server, "scheduler")),
        worker(url_of(server, "worker-worker-1"), "worker-1"),
        Fleet(url_of(server, "metrics"), settings=SETTINGS) as metrics,
    ):
        await metrics.ready(MODEL, 20)
        async with batch_runner(server, store), AsyncExitStack() as stack:
            settings = SETTINGS.model_copy(update={"store": store})
            for tenant in ("acme", "evil"):
                url = url_of(server, f"producer-{tenant}")
                fleet = await stack.enter_async_context(Fleet(url, tenant=tenant, settings=settings))
                name = (await fleet.batches.submit(rows(tmp_path))).name
                *_, last = [record async for record in fleet.batches.watch(name.id)]
                assert (last.status, last.counts.completed) == (BatchStatus.COMPLETED, 5)
                assert [record.name for record in await fleet.batches.list()] == [name]
                later = (await fleet.batches.submit(rows(tmp_path), deadline=3600)).name
                await fleet.batches.cancel(later.id)
                *_, last = [record async for record in fleet.batches.watch(later.id)]
                assert last.status is BatchStatus.CANCELLED
                await fleet.batches.delete(name.id)


async def test_the_file_and_the_client_each_keep_tenants_apart(guarded_server: Server) -> None:
    server = guarded_server
    async with (
        scheduler(url_of(server, "scheduler")),
        worker(url_of(server, "worker-worker-1"), "worker-1"),
        client(server, "producer-acme", "acme") as acme,
        # A client that is not told whose it is: now the file alone keeps it out.
        client(server, "producer-evil", "") as evil,
    ):
        await acme.ready(MODEL, 20)
        job = await acme.submit(model=MODEL, prompt="secret", id="there", stream=True, max_tokens=2)
        await job.result(timeout=20)
        texts = []
        for handle in (str(job), str(job).replace("there", "never")):
            for ask in (evil.job(handle), evil.result(handle, timeout=1), evil.cancel(handle), evil.forget(handle, 1)):
                with pytest.raises(NotAllowed) as told:
                    await ask
                texts.append(str(told.value))
        assert len(set(texts)) == 1
        with pytest.raises(NotAllowed):
            await evil.submit(model=MODEL, prompt="x", tenant="acme")
