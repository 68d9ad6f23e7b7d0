"""arq as the batch runner has it: JSON instead of pickle, our own connections, and locks that a lease may break."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from arq.connections import ArqRedis
from arq.constants import in_progress_key_prefix
from arq.cron import CronJob
from arq.worker import Function, Worker
from redis.exceptions import ResponseError

from protocol import keys, store, wire
from protocol.batches import BatchName
from protocol.call import Call, run, translate
from protocol.errors import StoreFull

LONGEST_RUN_S = 400 * 86_400.0
"""Longer than any batch may last: what ends one is its own expiry."""
LONGEST_CHORE_S = 60.0
POLL_S = 0.5
SIGN_S = 5
"""How often a runner gives a sign of life, which expires a second later."""
TRIES = 1_000_000
"""What a job's own tries are limited by stands in the job."""
RUN, TELL = "run", "tell"


class SteadyWorker(Worker):
    """arq's, which would end while Redis is full, and rest until a clock that was set back is where it was."""

    async def _poll_iteration(self) -> None:
        if self._last_health_check > time.time():
            self._last_health_check = 0.0
            for job in self.cron_jobs or ():
                job.next_run = None
        try:
            await super()._poll_iteration()
        except ResponseError as error:
            # Nothing can be begun, but what runs takes results out, which makes room.
            if not isinstance(translate(error), StoreFull):
                raise


def connect(url: str) -> ArqRedis:
    """Arq's client on our kind of connections: time limits, TLS, Sentinel.

    Raises:
        SetupError: the URL is malformed.
    """
    return ArqRedis(
        store.connect(url).connection_pool,
        job_serializer=wire.dumps,
        job_deserializer=wire.loads,
        default_queue_name=keys.BATCH_CHORES,
    )


def runs(redis: ArqRedis, function: Function, concurrency: int) -> Worker:
    """The worker of the queue that has one job a batch."""
    return _worker(redis, keys.BATCH_RUNS, [function], (), concurrency, LONGEST_RUN_S)


def chores(redis: ArqRedis, cron_jobs: Sequence[CronJob]) -> Worker:
    """The worker of the queue of what is done now and then; what a crash cut off begins anew after a minute."""
    return _worker(redis, keys.BATCH_CHORES, (), cron_jobs, 16, LONGEST_CHORE_S)


def calls(redis: ArqRedis, function: Function) -> Worker:
    """The worker of the webhook's calls: a queue of their own, for a server that hangs holds up all behind it."""
    return _worker(redis, keys.BATCH_CALLS, [function], (), 16, LONGEST_CHORE_S)


def _worker(
    redis: ArqRedis,
    queue: str,
    functions: Sequence[Function],
    cron_jobs: Sequence[CronJob],
    most: int,
    timeout_s: float,
) -> Worker:
    return SteadyWorker(
        functions,
        cron_jobs=cron_jobs,
        queue_name=queue,
        redis_pool=redis,
        handle_signals=False,
        max_jobs=most,
        job_timeout=timeout_s,
        keep_result=0,
        health_check_interval=SIGN_S,
        poll_delay=POLL_S,
        max_tries=TRIES,
        job_serializer=wire.dumps,
        job_deserializer=wire.loads,
    )


def living(worker: Worker) -> list[asyncio.Task[Any]]:
    """What arq runs for a worker: its poll, and a task around each job."""
    tasks = [worker.main_task, *worker.tasks.values()]
    return [task for task in tasks if task and not task.done()]


def untold(worker: Worker) -> list[asyncio.Task[Any]]:
    """Those of `living` that may be cancelled once more: not where the job itself knows already."""
    told = {job_id for job_id, job in worker.job_tasks.items() if job.cancelling()}
    kept = {task for job_id, task in worker.tasks.items() if job_id in told}
    return [task for task in living(worker) if task not in kept]


async def ask_to_run(redis: ArqRedis, name: BatchName) -> None:
    """Queue a batch that nobody owns; one that is queued already is not queued twice.

    arq keeps a killed runner's job locked for as long as that job might have lasted. Our lease has ended long before,
    and says that nobody runs it: so the lock goes. Should somebody just begin, the second one finds the batch owned.
    What a clock that is ahead has queued is due now, by ours.
    """
    if await _queued(redis, RUN, name, keys.BATCH_RUNS) is None:
        job_id, now_ms = _id(RUN, name), time.time_ns() // 1_000_000
        await run(redis, Call(("DEL", in_progress_key_prefix + job_id), bool))
        await run(redis, Call(("ZADD", keys.BATCH_RUNS, "XX", "LT", now_ms, job_id), int))


async def ask_to_tell(redis: ArqRedis, name: BatchName) -> None:
    """Queue the webhook's call for a batch that has ended, unless it is queued."""
    await _queued(redis, TELL, name, keys.BATCH_CALLS)


async def _queued(redis: ArqRedis, function: str, name: BatchName, queue: str) -> Any:  # noqa: ANN401 - arq's own
    return await redis.enqueue_job(function, name.ref, _job_id=_id(function, name), _queue_name=queue)


def _id(function: str, name: BatchName) -> str:
    return f"{function}:{name.ref}"
