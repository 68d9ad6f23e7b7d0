"""The clients: they submit, follow, wait, cancel and forget through `Fleet`, and check what they are shown."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from bench.sim.engine import DEADLY, FLAKY, POISON, SLOW
from bench.sim.oracle import Violation
from bench.sim.world import Actor
from producer.events import End, Restart, Tokens, Truncated
from producer.fleet import Fleet
from producer.jobs import Job
from protocol.errors import (
    LibraryMissing,
    QueueFull,
    StoreFull,
    StoreUnavailable,
    UnknownJob,
    UnknownModel,
)
from protocol.handle import Handle
from protocol.messages import Outcome
from protocol.settings import Settings
from protocol.states import Priority, State

MODEL = "m"
TENANTS = ("red", "blue")
PAUSE_S = 0.3
FEWEST_JOBS, MOST_JOBS = 32, 40
SUBMITTED_WITHIN_S = 10.0
_LATER = (StoreUnavailable, QueueFull, StoreFull, LibraryMissing, UnknownModel)


@dataclass(frozen=True, slots=True)
class Wish:
    """One job that a client wants done.

    Attributes:
        own_id: of the job.
        at_s: when it is submitted.
        kind: what its prompt does to an engine; empty for most.
        streams: whether it is followed; else its result is waited for.
        leaves_after: a follower goes after so many pieces and comes back with its place; 0 stays.
        cancel_after_s: None for most.
        deadline_s: None for most.
    """

    own_id: str
    tenant: str
    at_s: float
    priority: Priority
    kind: str
    streams: bool
    leaves_after: int
    delay_s: float
    cancel_after_s: float | None
    deadline_s: float | None

    @property
    def ref(self) -> str:
        """The job's name inside its shard."""
        return f"{self.tenant}:{self.own_id}"

    @property
    def poison(self) -> bool:
        """Whether it must end set aside."""
        return self.kind in (POISON, DEADLY)


def make_wishes(chance: Random) -> list[Wish]:
    """At least `FEWEST_JOBS` jobs; one or two of them are poison."""
    kinds = [POISON, *([DEADLY] if chance.random() < 0.5 else [])]
    return [_wish(number, kinds, chance) for number in range(chance.randint(FEWEST_JOBS, MOST_JOBS))]


def _wish(number: int, kinds: Sequence[str], chance: Random) -> Wish:
    kind = kinds[number] if number < len(kinds) else chance.choice((FLAKY, SLOW, SLOW, "", "", "", "", "", "", ""))
    plain = kind == ""
    deadline_s = chance.uniform(1.0, 6.0) if plain and chance.random() < 0.07 else None
    return Wish(
        own_id=f"j{number}",
        tenant=chance.choice(TENANTS),
        at_s=chance.uniform(0.0, SUBMITTED_WITHIN_S),
        priority=chance.choice(list(Priority)),
        kind=kind,
        streams=chance.random() < 0.7,
        leaves_after=chance.choice((0, 0, 1, 2)),
        delay_s=0.0 if deadline_s else chance.choice((0.0, 0.0, 0.0, 1.5)),
        cancel_after_s=chance.uniform(0.0, 2.0) if plain and chance.random() < 0.1 else None,
        deadline_s=deadline_s,
    )


@dataclass(slots=True)
class Ledger:
    """What the clients know, on disk as it were: it outlives their processes.

    Attributes:
        ended: how each wish ended, and by which attempt.
        lost: jobs that had to be submitted again because Redis had lost them.
        restarts: how often a followed text began anew.
    """

    ended: dict[str, tuple[Handle, Outcome]] = field(default_factory=dict)
    lost: int = 0
    restarts: int = 0
    pieces: int = 0


class Customer:
    """One client process.

    Args:
        actor: the process.
        wishes: what it wants.
        ledger: what it and its predecessors got.
    """

    def __init__(self, actor: Actor, wishes: Sequence[Wish], ledger: Ledger, settings: Settings) -> None:
        self._wishes, self._ledger = wishes, ledger
        self._fleet = Fleet(redis=actor.redis, settings=settings)  # type: ignore[arg-type]  # a stand-in for redis-py's

    async def run(self) -> None:
        """Until every wish has ended."""
        async with asyncio.TaskGroup() as group:
            for wish in self._wishes:
                group.create_task(self._serve(wish))
        await self._fleet.close()

    async def _serve(self, wish: Wish) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, wish.at_s - loop.time()))
        while wish.ref not in self._ledger.ended:
            try:
                await self._get(wish)
            except UnknownJob:
                self._ledger.lost += 1
            except _LATER:
                await asyncio.sleep(PAUSE_S)
        await self._forget(*self._ledger.ended[wish.ref])

    async def _get(self, wish: Wish) -> None:
        job = await self._fleet.submit(
            id=wish.own_id,
            tenant=wish.tenant,
            model=MODEL,
            prompt=f"{wish.ref} {wish.kind}",
            priority=wish.priority,
            stream=wish.streams,
            delay=wish.delay_s,
            deadline=wish.deadline_s,
            max_tokens=8,
        )
        if wish.cancel_after_s is not None:
            await asyncio.sleep(wish.cancel_after_s)
            await self._fleet.cancel(job)
        outcome = await (self._follow(wish, job) if wish.streams else job.result())
        check_outcome(wish, outcome)
        self._ledger.ended[wish.ref] = job.handle, outcome

    async def _follow(self, wish: Wish, job: Job) -> Outcome:
        """Read the job's events to its end; the text must be the stored one."""
        said: list[str] = []
        after, pieces, whole = "", 0, True
        while True:
            events = self._fleet.follow(job, after)
            async for event in events:
                match event:
                    case Restart():
                        said, whole = [], True
                        self._ledger.restarts += 1
                    case Truncated():
                        whole = False
                    case Tokens():
                        said.append(event.text)
                        after, pieces = event.id, pieces + 1
                    case End(outcome=outcome):
                        self._ledger.pieces += pieces
                        if whole and outcome.state is State.COMPLETED and "".join(said) != outcome.text:
                            raise Violation(f"{wish.ref}: its follower read {''.join(said)!r}, not {outcome.text!r}")
                        return outcome
                if pieces == wish.leaves_after > 0:
                    pieces += 1
                    break
            await events.aclose()

    async def _forget(self, handle: Handle, outcome: Outcome) -> None:
        while True:
            with suppress(*_LATER):
                await self._fleet.forget(handle, outcome.attempt)
                return
            await asyncio.sleep(PAUSE_S)


def check_outcome(wish: Wish, outcome: Outcome) -> None:
    """Each job ends as it must.

    Raises:
        Violation: it did not.
    """
    code = outcome.error.code if outcome.error else ""
    allowed = outcome.state is State.COMPLETED and not wish.poison and bool(outcome.text)
    allowed |= wish.cancel_after_s is not None and outcome.state is State.CANCELLED
    allowed |= wish.deadline_s is not None and (outcome.state is State.EXPIRED or code == "unreachable")
    allowed |= wish.poison and code == "struck_out"
    allowed |= wish.kind == FLAKY and outcome.state is State.FAILED and code != "struck_out"
    if not allowed:
        raise Violation(f"{wish.ref} ended {outcome.state} {code} with {outcome.text!r}; it was {wish}")
