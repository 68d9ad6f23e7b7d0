"""All workers of a fleet, and an operator's word to one of them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from redis.asyncio import Redis

from producer.status import read_workers, shards_of
from protocol import functions, reads
from protocol.call import run
from protocol.errors import AmbiguousWorker, CommandRefused, UnknownWorker, WaitTimeout
from protocol.functions.command import Command
from protocol.handle import Shard
from protocol.messages import WorkerRecord
from protocol.states import WorkerState

LOOK_S = 0.05
"""How often the worker's report is looked at: ten times as often as a worker beats."""
ANSWER_S = 60.0
"""How long to wait for an answer by default; waking a large model takes seconds."""


@dataclass(frozen=True, slots=True)
class PlacedWorker:
    """A worker and the shard that it works for."""

    shard: Shard
    record: WorkerRecord


@dataclass(frozen=True, slots=True)
class Roster:
    """All workers at one moment of Redis's clock, by shard and label."""

    now_ms: int
    workers: tuple[PlacedWorker, ...]


@dataclass(frozen=True, slots=True)
class Obeyed:
    """What came of a command."""

    worker: PlacedWorker
    """As it was found before."""
    state: WorkerState
    """Its state now; `leaving` when it is gone already."""
    seconds: float
    """From sending the command to seeing the answer."""


def state_of(worker: WorkerRecord, now_ms: int) -> WorkerState:
    """The state that a worker published; `lost` once its lease is over."""
    return worker.state if worker.lease_ms > now_ms else "lost"


async def read_roster(redis: Redis) -> Roster:
    """The workers of every shard that is known.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    now_ms = await run(redis, reads.store_time_ms())
    shards = shards_of(await run(redis, reads.models()))
    placed = [PlacedWorker(shard, record) for shard in shards for record in await read_workers(redis, shard)]
    return Roster(now_ms, tuple(placed))


async def is_served(redis: Redis, model: str) -> bool:
    """Whether an active worker that holds a lease serves a model.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    models = await run(redis, reads.models())
    now_ms = await run(redis, reads.store_time_ms())
    for shard in shards_of({name: record for name, record in models.items() if name == model}):
        if any(state_of(worker, now_ms) == "active" for worker in await read_workers(redis, shard)):
            return True
    return False


def find_worker(name: str, roster: Roster) -> PlacedWorker:
    """The worker that holds a lease and has this id, this label, or an id that begins like this: in this order.

    Raises:
        UnknownWorker: there is none.
        AmbiguousWorker: there are several.
    """
    alive = [worker for worker in roster.workers if state_of(worker.record, roster.now_ms) != "lost"]
    for matches in (
        [worker for worker in alive if worker.record.id == name],
        [worker for worker in alive if worker.record.label == name],
        [worker for worker in alive if name and worker.record.id.startswith(name)],
    ):
        if len(matches) > 1:
            raise AmbiguousWorker(f"{len(matches)} workers go by this name", f"Name one by its id: {_ids(matches)}.")
        if matches:
            return matches[0]
    raise UnknownWorker("no worker of this name holds a lease", _known(alive))


def _ids(workers: Sequence[PlacedWorker]) -> str:
    return ", ".join(worker.record.id for worker in workers[:10])


def _known(workers: Sequence[PlacedWorker]) -> str:
    labels = ", ".join(sorted({worker.record.label for worker in workers})[:10])
    return f"There are: {labels}." if labels else "There is none at all."


async def command_worker(redis: Redis, name: str, word: Command, *, timeout_s: float = ANSWER_S) -> Obeyed:
    """Tell a worker to promote, rest, sleep, wake or drain, and wait until it says that it has.

    Args:
        redis: where the fleet is.
        name: the worker's id, its label, or the beginning of its id.
        word: what to do. `drain` is answered when the worker takes nothing more, not when it has gone.
        timeout_s: how long to wait; the command stays with the worker when this is over.

    Raises:
        UnknownWorker, AmbiguousWorker: as `find_worker`.
        CommandRefused: the worker says why it did not.
        WaitTimeout: it did not answer in time, or went away before it did.
        StoreUnavailable: Redis does not answer.
    """
    found = find_worker(name, await read_roster(redis))
    clock = asyncio.get_running_loop().time
    sent_s = clock()
    entry = await run(redis, functions.command(found.shard, found.record.id, word))
    if entry is None:
        raise UnknownWorker("the worker has just lost its lease", "Look with: tokenfleet workers list.")
    try:
        async with asyncio.timeout(timeout_s):
            state = await _answer(redis, found, word, entry)
    except TimeoutError:
        hint = "It still will, unless it hangs. Look with: tokenfleet workers list."
        raise WaitTimeout(f"the worker did not answer within {timeout_s:g} s", hint) from None
    return Obeyed(found, state, clock() - sent_s)


async def _answer(redis: Redis, worker: PlacedWorker, word: Command, entry: str) -> WorkerState:
    """Wait until the worker's report names the command; its state then."""
    while True:
        record = await run(redis, reads.worker_record(worker.shard, worker.record.id))
        if record is None:
            if word == "drain":
                return "leaving"
            raise WaitTimeout("the worker went away before it answered", "Its jobs go to other workers.")
        answered, refusal = record.report.answered, record.report.refusal
        if answered == entry and refusal:
            raise CommandRefused(f"the worker refuses: {refusal}")
        if _position(answered) >= _position(entry):
            return record.state
        await asyncio.sleep(LOOK_S)


def _position(entry: str) -> tuple[int, int]:
    """Where an entry stands in its inbox; before all others for a text that is no entry's id."""
    time_ms, _, number = entry.partition("-")
    return (int(time_ms), int(number)) if time_ms.isdecimal() and number.isdecimal() else (0, 0)
