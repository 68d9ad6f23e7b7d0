"""The batch runner's jobs, and how it goes on when Redis does not."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import aiohttp
from arq import Retry, cron, func
from arq.connections import ArqRedis
from arq.typing import WorkerCoroutine
from arq.worker import Worker
from redis.asyncio import Redis
from redis.exceptions import RedisError

from producer.batch.service import chores, hooks
from producer.batch.service.owner import Terms
from producer.batch.service.reading import records_of
from producer.batch.service.serve import serve
from producer.batch.store import FileStore
from producer.fleet import Fleet
from protocol import batch_reads, log, store
from protocol.batches import BatchName
from protocol.call import run, translate
from protocol.errors import FleetError, StoreFull, StoreUnavailable
from protocol.settings import Settings
from tokenfleet.runner import queues
from tokenfleet.runner.metrics import Metrics

Context = dict[Any, Any]
EACH_SECOND = frozenset(range(60))
CALL_S = 10.0
"""How long the webhook may take to answer."""
AGAIN_S = 1.0
"""Between Redis's failure and the next look at it; and between two tries to stop what did not hear of the first."""
LIVING_S = 15.0
"""Between two looks at the fleet's batches, to count them; Prometheus asks no more often."""
MOST_CALLS = 8
"""After so many failures a webhook is given up: with the default pauses, after 8 hours."""
_log = log.get_logger("batch-runner")


@dataclass(frozen=True)
class Runner:
    """One process's part in the service."""

    settings: Settings
    files: FileStore
    fleet: Fleet
    redis: ArqRedis
    http: aiohttp.ClientSession
    metrics: Metrics | None = None

    def workers(self, concurrency: int) -> list[Worker]:
        """Arq's workers, new ones: one a queue, and none for the webhook's where there is no webhook."""
        sweep = cron(_job(self.sweep), name="cron:sweep", second=set(EACH_SECOND), run_at_startup=True)
        clean = cron(_job(self.clean), name="cron:clean", second=30, run_at_startup=True)
        tell = [queues.calls(self.redis, func(_job(self.tell), name=queues.TELL))] if self.settings.webhook_url else []
        return [
            queues.runs(self.redis, func(_job(self.run), name=queues.RUN), concurrency),
            queues.chores(self.redis, [sweep, clean]),
            *tell,
        ]

    async def run(self, _: Context, ref: str) -> None:
        """Own a batch and run it, unless another does."""
        name = BatchName.parse(ref)
        settings = self.settings
        terms = Terms(settings.batch_lease_s, settings.batch_keep_s, notify=bool(settings.webhook_url))
        fleet = Fleet(redis=self.fleet.redis, tenant=name.tenant, settings=settings)
        try:
            await self._serve(fleet, name, terms)
        except FleetError as error:
            _log.warning("batch_not_taken", batch=name.id, code=error.code)
        finally:
            await fleet.close()

    async def _serve(self, fleet: Fleet, name: BatchName, terms: Terms) -> None:
        if self.metrics is None:
            await serve(fleet, self.files, name, terms)
            return
        with self.metrics.batch() as watch:
            if end := await serve(fleet, self.files, name, terms, watch):
                self.metrics.ended(end)

    async def sweep(self, _: Context) -> None:
        """Queue what nobody owns, and ends that were not told."""
        try:
            waiting = await chores.due(self.fleet.redis)
            for name in filter(self._mine, waiting.idle):
                await queues.ask_to_run(self.redis, name)
            for name in filter(self._mine, waiting.untold if self.settings.webhook_url else ()):
                await queues.ask_to_tell(self.redis, name)
        except FleetError as error:
            _log.warning("batches_unread", code=error.code)

    async def clean(self, _: Context) -> None:
        """Delete what was kept long enough."""
        try:
            await chores.clean(self.fleet.redis, self.files, self.settings.batch_keep_s)
        except (FleetError, OSError) as error:
            _log.warning("clean_up_failed", code=getattr(error, "code", type(error).__name__))

    async def tell(self, context: Context, ref: str) -> None:
        """Call the webhook; again after a growing pause when it fails, and at last never more."""
        name, attempt = BatchName.parse(ref), int(context["job_try"])
        # A sweep may have looked just before another runner's call was taken.
        if not await run(self.fleet.redis, batch_reads.untold(name)):
            return
        for record in await records_of(self.fleet.redis, [name]):
            if record.status.terminal and not await self._call(hooks.event_of(record)):
                if attempt < MOST_CALLS:
                    raise Retry(defer=self.settings.webhook_retry_s * 4 ** (attempt - 1))
                _log.error("webhook_given_up", batch=name.id, calls=attempt)
        await run(self.fleet.redis, batch_reads.told(name))

    async def _call(self, event: hooks.Event) -> bool:
        headers = hooks.headers(event, self.settings.webhook_secret, int(time.time()))
        # A redirect could lead anywhere; the address is the operator's word.
        call = self.http.post(self.settings.webhook_url, data=event.body, headers=headers, allow_redirects=False)
        try:
            async with call as answer:
                taken = 200 <= answer.status < 300
                if taken:
                    _log.info("webhook_called", event_id=event.id, status_code=answer.status)
                else:
                    _log.warning("webhook_failed", event_id=event.id, status_code=answer.status)
                return taken
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            _log.warning("webhook_failed", event_id=event.id, kind=type(error).__name__)
            return False

    def _mine(self, name: BatchName) -> bool:
        return self.settings.tenant in ("", name.tenant)


def _job(method: Callable[..., Awaitable[None]]) -> WorkerCoroutine:
    """Arq asks for a function's name, which a method has too, though its type does not say so."""
    return cast("WorkerCoroutine", method)


async def run_runner(settings: Settings, files: FileStore, concurrency: int, metrics: Metrics | None = None) -> None:
    """Run batches until cancelled; then each is handed over.

    Raises:
        StoreUnavailable: Redis did not answer at the start.
        SetupError: the Redis URL or the webhook's secret is malformed.
        NotAllowed: the Redis user lacks a right.
    """
    hooks.key_of(settings.webhook_secret)
    where = store.redacted(settings.store_url)
    # It names no more than our own jobs' ids, and each failure is told by us.
    logging.getLogger("arq").setLevel(logging.CRITICAL)
    first = True
    async with (
        Fleet(settings=settings) as fleet,
        aiohttp.ClientSession(timeout=_call_time(), cookie_jar=aiohttp.DummyCookieJar()) as http,
        living_told(fleet.redis, metrics),
    ):
        while True:
            patience_s = settings.redis_patience_s if first else float("inf")
            await store.wait_until_up(fleet.redis, patience_s, lambda: _log.warning("waiting_for_redis", url=where))
            first = False
            redis = queues.connect(settings.store_url)
            try:
                await _work(Runner(settings, files, fleet, redis, http, metrics).workers(concurrency))
            except (RedisError, OSError) as error:
                failure = translate(error)
                if not isinstance(failure, StoreUnavailable | StoreFull):
                    raise failure from error
                # arq ends with its connection: its jobs were handed over as by a stop, and are taken again.
                _log.warning("redis_away", url=where, code=failure.code)
                await asyncio.sleep(AGAIN_S)
            finally:
                await redis.aclose(close_connection_pool=True)


@asynccontextmanager
async def living_told(redis: Redis, metrics: Metrics | None) -> AsyncIterator[None]:
    """While the block runs, this runner tells of the fleet's batches, as each does: arq's chores run on one of them."""
    telling = asyncio.create_task(_tell_living(redis, metrics)) if metrics else None
    try:
        yield
    finally:
        if telling:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)


async def _tell_living(redis: Redis, metrics: Metrics) -> None:
    while True:
        try:
            metrics.living(await chores.living(redis))
        except FleetError:
            # The sweep, which looks there too, tells why.
            metrics.living(None)
        await asyncio.sleep(LIVING_S)


def _call_time() -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=CALL_S)


async def _work(workers: Sequence[Worker]) -> None:
    """Until cancelled, or one has failed; then nothing of them is left."""
    working = [asyncio.create_task(worker.async_run()) for worker in workers]
    _log.info("batch_runner_ready", jobs=workers[0].max_jobs)
    try:
        await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
        for task in working:
            if task.done():
                task.result()
    finally:
        for task in working:
            task.cancel()
        await _stop(workers)
        await asyncio.gather(*working, return_exceptions=True)


async def _stop(workers: Sequence[Worker]) -> None:
    """Cancel all that arq runs, until it has ended.

    Before Python 3.12 redis-py may swallow a cancellation, and arq does not look: its poll would go on for ever, and
    begin the batches anew that were just handed over. A job that was told is left alone: it hands its batch over.
    """
    ended: set[asyncio.Task[Any]] = set()
    while living := {task for worker in workers for task in queues.living(worker)}:
        for task in (task for worker in workers for task in queues.untold(worker)):
            task.cancel()
        done, _ = await asyncio.wait(living, timeout=AGAIN_S)
        ended |= done
    await asyncio.gather(*ended, return_exceptions=True)
