"""Puts the server and all roles on, lets the monkey loose, and takes everything off again."""

import asyncio
import contextlib
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.chaos import nursery, roles, verdict
from bench.chaos.journal import read
from bench.chaos.monkey import Harm, Monkey
from bench.chaos.nursery import Cub
from bench.chaos.plan import SHARD, Plan
from bench.chaos.verdict import Left, Seen
from protocol import keys
from tests.support.servers import Server, valkey_binary

LONGEST_S = 285.0
"""A run that has not ended by then is stopped and judged as it is."""
TELL_S = 5.0
WATCH_S = 0.02
STOP_S = 10.0
_KILLED = -signal.SIGKILL


class Stage:
    """One run.

    Attributes:
        plan: of the run, once it plays.
        harm: what the monkey did.
        seen: what the processes noted.
        seconds: from the first submit to the last end.
        surprises: processes that ended by themselves though no poison killed them.
    """

    plan: Plan
    harm: Harm
    seen: Seen
    seconds: float = 0.0
    surprises: int = 0

    def __init__(self, folder: Path, plan: Callable[[str], Plan]) -> None:
        """`plan` is made once the server's URL is known."""
        self._folder, self._planned = folder, plan
        self._cubs: dict[str, Cub] = {}

    async def play(self) -> Left:
        """From the first process to the last."""
        data = self._folder / "valkey"
        data.mkdir()
        # Rewritten often: a restart reads the file from its beginning.
        often = ("--auto-aof-rewrite-min-size", "8mb", "--loglevel", "warning")
        server = Server(valkey_binary(), data, append_only=True, extra=often)
        server.start()
        self.plan = self._planned(server.url)
        try:
            return await self._perform(server)
        finally:
            for cub in self._cubs.values():
                cub.kill()
            server.kill()

    @property
    def lives(self) -> int:
        """How many processes there were."""
        return sum(cub.starts for cub in self._cubs.values())

    def oddities(self) -> list[str]:
        """What was seen and must not be, for people."""
        missing = sorted(verdict.lost(self.plan, self.seen))[:5]
        bad = [f"job {fact.number}, attempt {fact.attempt}: {fact.detail}" for fact in self.seen.kind("bad")]
        return [*(f"job {number} is lost" for number in missing), *bad]

    async def _perform(self, server: Server) -> Left:
        nursery.warm(roles.__name__)
        self._cast()
        for cub in self._cubs.values():
            cub.start()
        monkey, begin = Monkey(self.plan, server, self._cubs), time.monotonic()
        self.harm = monkey.harm
        tasks = [asyncio.create_task(work) for work in (monkey.run(), self._watch(), self._tell(begin))]
        try:
            async with asyncio.timeout(LONGEST_S):
                while not self._all_done():
                    await asyncio.wait(tasks, timeout=1, return_when=asyncio.FIRST_EXCEPTION)
                    for task in tasks:
                        if task.done():
                            task.result()
        except TimeoutError:
            print("the time is over", file=sys.stderr)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self.seconds = time.monotonic() - begin
        return self._bow(server)

    def _cast(self) -> None:
        plan = self.plan
        casting: tuple[tuple[str, int, Callable[[int], tuple[Any, ...]]], ...] = (
            ("scheduler", plan.schedulers, lambda _: (roles.schedule, plan)),
            ("worker", plan.workers, lambda number: (roles.work, plan, f"worker-{number}")),
            ("producer", plan.producers, lambda number: (roles.produce, plan, number)),
            ("follower", plan.followers, lambda number: (roles.follow, plan, number)),
        )
        for kind, count, part in casting:
            for number in range(count):
                name = f"{kind}-{number}"
                self._cubs[name] = Cub(name, self._folder / f"{name}.log", *part(number))

    async def _watch(self) -> None:
        """Start whoever has died; a producer that is done stays down."""
        while True:
            for cub in self._cubs.values():
                if cub.exit_code is None or (cub.name.startswith("producer") and cub.exit_code == 0):
                    continue
                self.surprises += not (cub.name.startswith("worker") and cub.exit_code == _KILLED)
                cub.start()
            await asyncio.sleep(WATCH_S)

    async def _tell(self, begin: float) -> None:
        """Progress, for people."""
        places: dict[Path, int] = {}
        counts: Counter[str] = Counter()
        while True:
            await asyncio.sleep(TELL_S)
            for number in range(self.plan.producers):
                path = self.plan.journal(f"producer-{number}")
                for fact, after in read(path, places.get(path, 0)):
                    places[path] = after
                    counts[fact.kind] += 1
            kills = ", ".join(f"{count} {kind}" for kind, count in self.harm.kills.items())
            said = f"{time.monotonic() - begin:4.0f} s: {counts['sub']} submitted, {counts['end']} ended"
            print(f"{said}; killed: {kills}", file=sys.stderr)

    def _all_done(self) -> bool:
        return all(cub.exit_code == 0 for name, cub in self._cubs.items() if name.startswith("producer"))

    def _bow(self, server: Server) -> Left:
        """Workers leave while a scheduler is there; then look at what is left."""
        self.seen = Seen.of(self.plan)
        for kind in ("producer", "follower", "worker", "scheduler"):
            group = [cub for name, cub in self._cubs.items() if name.startswith(kind)]
            for cub in group:
                cub.signal(signal.SIGKILL if kind in ("producer", "follower") else signal.SIGTERM)
            if kind == "worker":
                self._until_nobody_is_left(server, group)
        with server.client() as client:
            return verdict.left_in(client)

    def _until_nobody_is_left(self, server: Server, workers: list[Cub]) -> None:
        """Also the leases of the last lives that were killed must have run out."""
        for cub in workers:
            cub.join(STOP_S)
        with contextlib.suppress(AssertionError), server.client() as client:
            server.wait_until(lambda: not client.exists(keys.workers(SHARD)))
