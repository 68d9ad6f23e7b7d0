"""`make failover`: the primary is killed under load and its replica promoted; which acknowledged submits are lost?"""

import argparse
import asyncio
import itertools
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.report import Target, show
from producer.fleet import Fleet
from protocol import errors, reads
from protocol.call import run, run_all, value_of
from protocol.functions import register
from protocol.handle import Handle
from protocol.messages import ModelRecord
from protocol.settings import Settings
from tests.support.replication import Group
from tests.support.servers import valkey_binary

MODEL = "failover"
AT_ONCE = 4
"""Submitters of each kind."""
LOAD_S = 1.0
BEHIND_S = 0.5
"""In every second round the replica is cut off for so long before the primary dies."""
NOBODY = 1
"""A port where nobody listens."""
LONGEST_S = 30.0
CHECKED_A_TRIP = 500


@dataclass(slots=True)
class Round:
    """One failover.

    Attributes:
        behind: whether the replica was made to lag.
        plain: acknowledged as `submit` does it.
        durable: acknowledged with `durable=True`.
        followed_s: from the kill to the first submit that the new primary acknowledged.
    """

    behind: bool
    plain: list[Handle] = field(default_factory=list)
    durable: list[Handle] = field(default_factory=list)
    followed_s: float = 0.0
    plain_lost: int = 0
    durable_lost: int = 0


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make failover", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="failovers")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        group = Group(valkey_binary(), Path(folder))
        try:
            group.start()
            rounds = asyncio.run(_rounds(group, options.rounds))
        finally:
            group.stop()
    targets = [
        Target("durable submits lost", sum(one.durable_lost for one in rounds), 0, "lower"),
        Target("longest until the new primary takes submits, s", max(one.followed_s for one in rounds), 10, "lower"),
    ]
    figures = {"failovers": float(len(rounds)), "durable submits acknowledged": _count(one.durable for one in rounds)}
    for behind, name in ((False, "replica up to date"), (True, f"replica {BEHIND_S} s behind")):
        mine = [one for one in rounds if one.behind is behind]
        figures[f"{name}: plain submits acknowledged"] = _count(one.plain for one in mine)
        figures[f"{name}: of them lost"] = float(sum(one.plain_lost for one in mine))
    show("failover", targets, figures, as_json=options.json)


def _count(handles: Iterator[list[Handle]]) -> float:
    return float(sum(map(len, handles)))


async def _rounds(group: Group, count: int) -> list[Round]:
    # A durable submit that waits for a replica is cut off by the failover, and begins anew.
    settings = Settings(redis_patience_s=LONGEST_S, durable_timeout_s=4, durable_replicas=1)
    numbers, done = itertools.count(), []
    async with Fleet(group.url, settings=settings) as fleet:
        await run(fleet.redis, register(MODEL, ModelRecord(pool=MODEL)))
        for number in range(count):
            one = Round(behind=number % 2 == 1)
            await _fail_over(group, fleet, one, numbers)
            one.plain_lost = await _lost(fleet, one.plain)
            one.durable_lost = await _lost(fleet, one.durable)
            done.append(one)
            lost = f"{one.plain_lost} of {len(one.plain)} plain, {one.durable_lost} of {len(one.durable)} durable"
            print(f"failover {number}: followed in {one.followed_s:.1f} s, lost {lost}", file=sys.stderr)
    return done


async def _fail_over(group: Group, fleet: Fleet, one: Round, numbers: Iterator[int]) -> None:
    """Submit, kill, go on until the new primary has taken submits of both kinds; then make the group whole."""
    loop, old = asyncio.get_running_loop(), group.primary
    work = [(one.plain, False)] * AT_ONCE + [(one.durable, True)] * AT_ONCE
    tasks = [asyncio.create_task(_submit(fleet, into, numbers, durable=durable)) for into, durable in work]
    await asyncio.sleep(LOAD_S)
    replica = group.replica
    if one.behind:
        # Not by stopping it: what has reached its machine would be read after all.
        with replica.client() as client:
            client.replicaof("127.0.0.1", NOBODY)
        await asyncio.sleep(BEHIND_S)
    old.kill()
    begin, before = loop.time(), len(one.plain)
    while len(one.plain) <= before + AT_ONCE:
        failed, _ = await asyncio.wait(tasks, timeout=0.01, return_when=asyncio.FIRST_EXCEPTION)
        for task in failed:
            task.result()
    one.followed_s = loop.time() - begin
    # Durable ones can go on only with a replica: the old primary comes back as one.
    await asyncio.to_thread(group.rejoin, old)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _submit(fleet: Fleet, into: list[Handle], numbers: Iterator[int], *, durable: bool) -> None:
    """One job after the other; `into` takes those that were acknowledged."""
    while True:
        try:
            own_id = f"job-{next(numbers)}"
            job = await fleet.submit(model=MODEL, prompt="x", priority="low", id=own_id, durable=durable)
        except errors.NotDurable:
            continue
        into.append(job.handle)


async def _lost(fleet: Fleet, handles: list[Handle]) -> int:
    lost = 0
    for first in range(0, len(handles), CHECKED_A_TRIP):
        calls = [reads.standing(handle) for handle in handles[first : first + CHECKED_A_TRIP]]
        lost += [value_of(found) for found in await run_all(fleet.redis, calls)].count(None)
    return lost


if __name__ == "__main__":
    main()
