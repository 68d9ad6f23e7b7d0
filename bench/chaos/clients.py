"""Producers and followers: they note what they see, and go on from their notes after a kill."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

from bench.chaos.journal import Journal, digest, read
from bench.chaos.plan import Plan, handle_of, request_of
from producer.events import End, Restart, Tokens, Truncated
from producer.fleet import Fleet
from producer.follow import BEHIND
from producer.jobs import Job
from protocol.errors import FleetError, UnknownJob
from protocol.states import State

A_TRIP = 4
AT_ONCE = 16
"""Jobs of one producer at a time: together as many as the workers have slots, so that no queue counts as recovery."""
FOLLOWED_AT_ONCE = 200
FOLLOWED = 10
"""The followers' share: each tenth job."""
LOOK_S = 0.1


async def produce(plan: Plan, producer: int) -> None:
    """Submit this producer's jobs and follow each to its end."""
    path, poison = plan.journal(f"producer-{producer}"), plan.poisonous()
    facts = [fact for fact, _ in read(path)]
    ended = {fact.number for fact in facts if fact.kind in ("end", "unknown")}
    known = {fact.number for fact in facts if fact.kind == "sub"}
    journal, loop = Journal(path), asyncio.get_running_loop()
    todo = [number for number in plan.own_jobs(producer) if number not in known]
    trips = [todo[first : first + A_TRIP] for first in range(0, len(todo), A_TRIP)]
    pause_s = A_TRIP * plan.producers / plan.rate
    async with Fleet(settings=plan.settings) as fleet, asyncio.TaskGroup() as group:
        room = asyncio.Semaphore(AT_ONCE)
        for number in sorted(known - ended):
            await room.acquire()
            group.create_task(_observe(fleet, journal, number, room))
        due_s = loop.time()
        for trip in trips:
            await _submit(fleet, journal, trip, poison)
            for number in trip:
                await room.acquire()
                group.create_task(_observe(fleet, journal, number, room))
            due_s = max(due_s + pause_s, loop.time() - pause_s)
            await asyncio.sleep(due_s - loop.time())


async def _submit(fleet: Fleet, journal: Journal, numbers: list[int], poison: frozenset[int]) -> None:
    """Until each is acknowledged."""
    while numbers:
        answers = await fleet.submit_many([request_of(number, number in poison) for number in numbers])
        again = []
        for number, answer in zip(numbers, answers, strict=True):
            if isinstance(answer, Job):
                journal.note("sub", number, detail=str(answer.created))
            else:
                again.append(number)
        numbers = again
        if again:
            await asyncio.sleep(LOOK_S)


async def follow(plan: Plan, follower: int) -> None:
    """Follow a share of what the producers note, for ever."""
    path = plan.journal(f"follower-{follower}")
    seen = {fact.number for fact, _ in read(path) if fact.kind in ("end", "unknown")}
    journal, room = Journal(path), asyncio.Semaphore(FOLLOWED_AT_ONCE)
    async with Fleet(settings=plan.settings) as fleet, asyncio.TaskGroup() as group:
        async for number in _submitted(plan):
            mine = number % FOLLOWED == 0 and number // FOLLOWED % plan.followers == follower
            if mine and number not in seen:
                await room.acquire()
                group.create_task(_observe(fleet, journal, number, room))


async def _submitted(plan: Plan) -> AsyncIterator[int]:
    """The jobs that producers note as submitted, as they do."""
    paths = {plan.journal(f"producer-{number}"): 0 for number in range(plan.producers)}
    while True:
        for path, offset in list(paths.items()):
            for fact, after in read(path, offset):
                paths[path] = after
                if fact.kind == "sub":
                    yield fact.number
        await asyncio.sleep(LOOK_S)


async def _observe(fleet: Fleet, journal: Journal, number: int, room: asyncio.Semaphore) -> None:
    """Follow one job to its end and note what is seen."""
    try:
        await _Observer(journal, number).watch(fleet)
    except UnknownJob:
        journal.note("unknown", number)
    except FleetError as error:
        journal.note("bad", number, detail=f"follow ended: {error.code}")
    finally:
        room.release()


class _Observer:
    """One job as one follower sees it."""

    def __init__(self, journal: Journal, number: int) -> None:
        self._journal, self._number = journal, number
        self._text, self._place, self._whole = "", (0, 0), True

    async def watch(self, fleet: Fleet) -> None:
        async with aclosing(fleet.follow(handle_of(self._number))) as events:
            async for event in events:
                match event:
                    case Tokens():
                        self._hear(event)
                    case Restart(reason):
                        self._text = ""
                        if reason == BEHIND:
                            # What it has heard is lost: the same frames may come once more.
                            self._place = (0, 0)
                    case Truncated():
                        self._whole = False
                    case End():
                        self._end(event)

    def _hear(self, event: Tokens) -> None:
        attempt, seq = (int(part) for part in event.id.split("-"))
        if (attempt, seq) <= self._place:
            self._journal.note("bad", self._number, attempt, f"frame {event.id} after {self._place}")
        if attempt != self._place[0]:
            self._journal.note("first", self._number, attempt)
        self._place = attempt, seq
        self._text += event.text

    def _end(self, event: End) -> None:
        outcome = event.outcome
        if outcome.state is State.COMPLETED and self._whole and self._text != outcome.text:
            self._journal.note("bad", self._number, outcome.attempt, "the text is not the outcome's")
        self._journal.note("end", self._number, outcome.attempt, f"{outcome.state} {digest(outcome.text)}")
