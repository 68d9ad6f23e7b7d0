"""A word to one worker: whom it reaches, and what comes of it. The worker here answers by hand."""

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis

from producer.workers import Obeyed, PlacedWorker, Roster, command_worker, find_worker, read_roster, state_of
from protocol import errors, reads
from protocol.call import run
from protocol.functions import command, leave
from protocol.functions.command import Command
from protocol.messages import InboxEntry, WorkerRecord
from protocol.states import WorkerState
from tests.producer.tiny import TinyWorker
from tests.support.builders import SHARD, join_worker
from tests.support.waiting import eventually

NOW_MS = 1_000


def a_worker(worker_id: str, label: str, lease_ms: int = NOW_MS + 1) -> PlacedWorker:
    return PlacedWorker(
        SHARD, WorkerRecord(id=worker_id, label=label, state="active", slots=1, held=0, lease_ms=lease_ms)
    )


ROSTER = Roster(
    NOW_MS,
    (
        a_worker("abc1", "one"),
        a_worker("abd2", "two"),
        a_worker("ee", "twin"),
        a_worker("ef", "twin"),
        a_worker("e", "abc1"),
        a_worker("gone", "gone", lease_ms=NOW_MS),
    ),
)


@pytest.mark.parametrize(
    ("name", "worker_id"),
    [("abc1", "abc1"), ("two", "abd2"), ("abd", "abd2"), ("e", "e"), ("ef", "ef"), ("abc", "abc1")],
)
def test_a_worker_is_found_by_id_label_or_the_beginning_of_its_id(name: str, worker_id: str) -> None:
    assert find_worker(name, ROSTER).record.id == worker_id


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("twin", errors.AmbiguousWorker),
        ("ab", errors.AmbiguousWorker),
        ("x", errors.UnknownWorker),
        ("", errors.UnknownWorker),
        ("gone", errors.UnknownWorker),
    ],
)
def test_a_name_that_is_nobodys_or_several_workers_is_refused(name: str, error: type[errors.FleetError]) -> None:
    with pytest.raises(error):
        find_worker(name, ROSTER)


def test_the_hint_says_who_is_there() -> None:
    with pytest.raises(errors.UnknownWorker, match="There are: abc1, one, twin, two"):
        find_worker("x", ROSTER)
    with pytest.raises(errors.UnknownWorker, match="There is none at all"):
        find_worker("x", Roster(NOW_MS, ()))


async def test_the_roster_has_lost_workers_too(redis: Redis, worker: TinyWorker) -> None:
    await run(redis, join_worker("w2", lease_ms=-1))
    roster = await read_roster(redis)
    states = {entry.record.id: state_of(entry.record, roster.now_ms) for entry in roster.workers}
    assert states == {"w1": "active", "w2": "lost"}


async def heard(redis: Redis) -> InboxEntry:
    """The first command in the inbox of w1."""

    async def find() -> list[InboxEntry]:
        return await run(redis, reads.inbox_after(SHARD, "w1", "0", 1))

    return (await eventually(find))[0]


async def answer(redis: Redis, state: WorkerState, **report: Any) -> None:
    await run(redis, join_worker("w1", state=state, join=False, **report))


def telling(redis: Redis, word: Command, timeout_s: float = 5) -> "asyncio.Task[Obeyed]":
    return asyncio.create_task(command_worker(redis, "label-w1", word, timeout_s=timeout_s))


async def test_a_command_is_over_when_the_report_names_it(redis: Redis, worker: TinyWorker) -> None:
    await answer(redis, "warm", answered="1-1", refusal="of another one")
    told = telling(redis, "promote")
    entry = await heard(redis)
    assert (entry.kind, entry.command) == ("command", "promote")
    await answer(redis, "active", answered=entry.entry_id)
    obeyed = await told
    assert (obeyed.worker.record.state, obeyed.state) == ("warm", "active")
    assert 0 <= obeyed.seconds < 5


async def test_a_later_command_that_was_answered_answers_this_one(redis: Redis, worker: TinyWorker) -> None:
    told = telling(redis, "wake")
    await heard(redis)
    later = await run(redis, command(SHARD, "w1", "sleep"))
    assert later
    await answer(redis, "asleep", answered=later, refusal="of the later one")
    assert (await told).state == "asleep"


async def test_a_refusal_says_why(redis: Redis, worker: TinyWorker) -> None:
    told = telling(redis, "sleep")
    entry = await heard(redis)
    await answer(redis, "active", answered=entry.entry_id, refusal="its device is a CPU")
    with pytest.raises(errors.CommandRefused, match="its device is a CPU"):
        await told


async def test_a_silent_worker_is_waited_for_no_longer_than_asked(redis: Redis, worker: TinyWorker) -> None:
    with pytest.raises(errors.WaitTimeout, match=r"within 0\.1 s"):
        await telling(redis, "promote", timeout_s=0.1)


@pytest.mark.parametrize("word", ["drain", "promote"])
async def test_a_worker_that_goes_away_has_drained_or_failed_to_answer(
    redis: Redis, worker: TinyWorker, word: Command
) -> None:
    told = telling(redis, word)
    await heard(redis)
    assert await run(redis, leave(SHARD, "w1"))
    if word == "drain":
        assert (await told).state == "leaving"
    else:
        with pytest.raises(errors.WaitTimeout, match="went away"):
            await told
