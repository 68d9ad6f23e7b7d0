"""Kills something each second, and notes which attempts that cut off."""

import asyncio
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field

from bench.chaos.held import held_by
from bench.chaos.journal import Journal
from bench.chaos.nursery import Cub
from bench.chaos.plan import SHARD, Plan, number_of
from bench.chaos.roles import CRASH
from tests.support.servers import Server

EACH_S = 1.0
RESTART_EACH_S = 30.0
LONGEST_START_S = 60.0
"""Of Redis, on a machine that others keep busy."""
VICTIMS = {"worker": 5, "scheduler": 2, "producer": 1, "follower": 1, "engine": 1}


@dataclass(frozen=True, slots=True)
class Cut:
    """An attempt that was in the hands of a worker when it, or its engine, was killed."""

    number: int
    attempt: int
    at_s: float


@dataclass(slots=True)
class Harm:
    """What was done."""

    kills: Counter[str] = field(default_factory=Counter)
    cuts: list[Cut] = field(default_factory=list)
    away_s: list[float] = field(default_factory=list)
    """How long each restart of Redis took."""


class Monkey:
    """Kills until cancelled; whoever it kills it starts again."""

    def __init__(self, plan: Plan, server: Server, cubs: dict[str, Cub]) -> None:
        self._server, self._cubs = server, cubs
        self._chance = random.Random(plan.seed)
        self._dead: set[str] = set()
        self.harm = Harm()
        self._journal = Journal(plan.journal("monkey"))

    async def run(self) -> None:
        """One kill each second; Redis is due every half minute."""
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        restart_s = next_s + RESTART_EACH_S
        while True:
            next_s += EACH_S
            await asyncio.sleep(next_s - loop.time())
            if loop.time() >= restart_s:
                restart_s += RESTART_EACH_S
                await asyncio.to_thread(self._restart_redis)
            else:
                self._kill_one()

    def _restart_redis(self) -> None:
        self._journal.note("kill", 0, detail="redis")
        begin = time.monotonic()
        self._server.kill()
        self._server.start(LONGEST_START_S)
        self.harm.kills["redis"] += 1
        self.harm.away_s.append(time.monotonic() - begin)

    def _kill_one(self) -> None:
        kind = self._chance.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        role = "worker" if kind == "engine" else kind
        cub = self._chance.choice([cub for name, cub in self._cubs.items() if name.startswith(role)])
        if cub.exit_code is not None:
            # It died by itself just now, or is done.
            return
        self._journal.note("kill", 0, detail=f"{kind} {cub.name}")
        at_s = time.monotonic()
        if kind == "engine":
            cub.signal(CRASH)
        else:
            cub.signal(signal.SIGKILL)
            cub.join()
        if role == "worker":
            for own_id, attempt in held_by(self._server, SHARD, cub.name, self._dead):
                number = number_of(own_id)
                self.harm.cuts.append(Cut(number, attempt, at_s))
                self._journal.note("cut", number, attempt, cub.name)
        if kind != "engine":
            cub.start()
        self.harm.kills[kind] += 1
