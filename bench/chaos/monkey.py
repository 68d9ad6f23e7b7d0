"""Kills something each second, and notes which attempts that cut off."""

import asyncio
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field

from redis import Redis

from bench.chaos.journal import Journal
from bench.chaos.nursery import Cub
from bench.chaos.plan import SHARD, Plan, number_of
from bench.chaos.roles import CRASH
from protocol import reads
from protocol.call import run_sync
from protocol.handle import Handle
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
            for number, attempt in self._held_by(cub.name):
                self.harm.cuts.append(Cut(number, attempt, at_s))
                self._journal.note("cut", number, attempt, cub.name)
        if kind != "engine":
            cub.start()
        self.harm.kills[kind] += 1

    def _held_by(self, label: str) -> list[tuple[int, int]]:
        """(job, attempt) of all that Redis counts as held by the last life of this label."""
        with self._server.client() as client:
            found = {lease: worker for worker, lease in run_sync(client, reads.leases(SHARD)).items() if lease}
            lives = [worker for _, worker in sorted(found.items()) if _label(client, worker) == label]
            # A life that was killed before it joined holds nothing, and the one before it was looked at then.
            if not lives or lives[-1] in self._dead:
                return []
            self._dead.add(lives[-1])
            entries = run_sync(client, reads.inbox_after(SHARD, lives[-1], "0", 1))
        assigned = [(Handle.of(SHARD, entry.ref), entry.attempt) for entry in entries if entry.kind == "assign"]
        return [(number_of(handle.own_id), attempt) for handle, attempt in assigned]


def _label(client: Redis, worker: str) -> str:
    record = run_sync(client, reads.worker_record(SHARD, worker))
    return record.label if record else ""
