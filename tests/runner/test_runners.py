"""Several batch runners, as processes that are killed and stopped: each batch has one owner, and every row one line."""

import asyncio
import signal
from pathlib import Path

import psutil
from openai.types import Batch

from producer.fleet import Fleet
from protocol import batch_reads, keys, reads
from protocol.batches import BatchStatus
from protocol.call import Call, run
from tests.runner.conftest import Runners, done, ended, ids, requests
from tests.support.waiting import eventually
from tokenfleet.up.fleet import EmbeddedFleet

ROWS = 60
MANY = 3 * ROWS
"""Which no machine is so busy as to run before a batch is met in its middle."""


def all_ids(count: int) -> list[str]:
    return sorted(f"r{number}" for number in range(count))


async def test_another_goes_on_within_seconds_when_the_owner_is_killed(
    fleet: Fleet, runners: Runners, tmp_path: Path
) -> None:
    runners.start()
    runners.start()
    name = (await fleet.batches.submit(requests(tmp_path / "in.jsonl", ROWS))).name
    owner = await runners.owner(name)
    assert await fleet.batches.has_runner()
    before = await done(fleet, name, 5)
    owner.kill()
    loop = asyncio.get_running_loop()
    killed_s = loop.time()

    async def taken() -> bool:
        return (await fleet.batches.get(name.id)).takes == before.takes + 1

    await eventually(taken, timeout_s=10)
    # Lease of 1.5 s, a look each second, arq's poll each half second, and what two busy cores add.
    assert loop.time() - killed_s < 6
    record = await ended(fleet, name)
    assert (record.status, record.counts.completed, record.counts.failed) == (BatchStatus.COMPLETED, ROWS, 0)
    assert await ids(fleet, name) == all_ids(ROWS)
    assert record.takes == 2


async def test_a_stopped_runner_hands_over_and_its_jobs_go_on(fleet: Fleet, runners: Runners, tmp_path: Path) -> None:
    runners.start()
    name = (await fleet.batches.submit(requests(tmp_path / "in.jsonl", MANY))).name
    owner = await runners.owner(name)
    await done(fleet, name, 5)
    owner.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(owner.wait, 10) == 0
    assert "batch_handed_over" in runners.events(0)

    # Nobody runs it now; its jobs do.
    async def finished_alone() -> bool:
        notices: list[bytes] = await run(fleet.redis, Call(("KEYS", f"*:done:default:{name.id}"), list))
        return bool(notices)

    await eventually(finished_alone, timeout_s=20)
    runners.start()
    record = await ended(fleet, name)
    assert (record.status, record.counts.completed, record.takes) == (BatchStatus.COMPLETED, MANY, 2)
    assert await ids(fleet, name) == all_ids(MANY)


async def test_one_that_stands_still_never_writes_beside_the_next(
    fleet: Fleet, runners: Runners, tmp_path: Path
) -> None:
    """SIGSTOP for longer than its lease: the next one waits for its folder, and goes on once it has noticed."""
    runners.start()
    runners.start()
    name = (await fleet.batches.submit(requests(tmp_path / "in.jsonl", ROWS))).name
    owner = await runners.owner(name)
    await done(fleet, name, 5)
    owner.send_signal(signal.SIGSTOP)
    try:

        async def tried() -> bool:
            return (await fleet.batches.get(name.id)).takes > 1

        await eventually(tried, timeout_s=20)
        assert not (await fleet.batches.get(name.id)).status.terminal
    finally:
        owner.send_signal(signal.SIGCONT)
    record = await ended(fleet, name)
    assert (record.status, record.counts.completed) == (BatchStatus.COMPLETED, ROWS)
    assert await ids(fleet, name) == all_ids(ROWS)


async def test_runners_share_the_work(fleet: Fleet, runners: Runners, tmp_path: Path) -> None:
    for _ in range(2):
        runners.start()
    source = requests(tmp_path / "in.jsonl", 4, tokens=4)
    names = [(await fleet.batches.submit(source)).name for _ in range(12)]
    records = [await ended(fleet, name) for name in names]
    assert {(record.status, record.takes) for record in records} == {(BatchStatus.COMPLETED, 1)}
    took = [runners.events(number).count("batch_taken") for number in range(2)]
    assert sum(took) == 12
    assert min(took) > 0


async def test_connections_break_below_a_runner(fleet: Fleet, runners: Runners, tmp_path: Path) -> None:
    runners.start()
    name = (await fleet.batches.submit(requests(tmp_path / "in.jsonl", ROWS))).name
    await done(fleet, name, 5)
    await run(fleet.redis, Call(("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"), int))
    record = await ended(fleet, name)
    assert (record.status, record.counts.completed) == (BatchStatus.COMPLETED, ROWS)
    assert await ids(fleet, name) == all_ids(ROWS)


async def test_redis_is_killed_below_a_runner(
    fleet: Fleet, embedded: EmbeddedFleet, runners: Runners, tmp_path: Path
) -> None:
    """kill -9 of the server, which comes back with what it has written: the runner is never started again."""
    runner = runners.start()
    name = (await fleet.batches.submit(requests(tmp_path / "in.jsonl", ROWS))).name
    before = await done(fleet, name, 5)
    (server,) = psutil.Process(embedded.process("valkey").pid).children()
    server.kill()
    record = await ended(fleet, name, timeout_s=60)
    assert before.counts.completed < ROWS
    assert runner.poll() is None
    assert "redis_away" in runners.events(0)
    assert (record.status, record.counts.completed) == (BatchStatus.COMPLETED, ROWS)
    assert await ids(fleet, name) == all_ids(ROWS)


async def test_cancelling_a_batch_that_runs(fleet: Fleet, runners: Runners, tmp_path: Path) -> None:
    runners.start()
    name = (await fleet.batches.submit(requests(tmp_path / "in.jsonl", MANY))).name
    await done(fleet, name, 5)
    await fleet.batches.cancel(name.id)
    record = await ended(fleet, name, timeout_s=10)
    assert record.status is BatchStatus.CANCELLED
    assert Batch.model_validate(record.as_json(), strict=True).cancelled_at
    assert record.counts.total == MANY
    assert 5 <= record.counts.completed < MANY
    assert await ids(fleet, name) == all_ids(MANY)


async def test_a_runner_deletes_what_was_kept_for_its_time(fleet: Fleet, runners: Runners, tmp_path: Path) -> None:
    keep = {"TOKENFLEET_BATCH_KEEP_S": "1"}
    runners.start(**keep)
    name = (await fleet.batches.submit(requests(tmp_path / "in.jsonl", 2, tokens=4))).name
    await ended(fleet, name)

    async def outdated() -> bool:
        now_ms = await run(fleet.redis, reads.store_time_ms())
        return await run(fleet.redis, batch_reads.outdated_batches(now_ms)) == [name]

    await eventually(outdated)
    runners.start(**keep)  # It looks when it starts, then each minute.

    async def gone() -> bool:
        return not await fleet.batches.list()

    await eventually(gone, timeout_s=60)
    files = [path for path in runners.store.rglob("*") if path.is_file()]
    assert {path.parent.parent.name for path in files} <= {"files"}
    assert all(path.name.startswith("file-") for path in files)


async def test_nothing_of_a_run_is_left_in_redis_but_what_expires(
    fleet: Fleet, runners: Runners, tmp_path: Path
) -> None:
    runners.start()
    name = (await fleet.batches.submit(requests(tmp_path / "in.jsonl", 3, tokens=4))).name
    await ended(fleet, name)

    async def forgotten() -> bool:
        return not await fleet.redis.zcard(keys.BATCH_RUNS)

    # The batch ends within the run: one that is stopped in between is looked at once more by the next runner.
    await eventually(forgotten)
    runners.stop()
    assert await run(fleet.redis, batch_reads.living_batches()) == []
    found: list[bytes] = await run(fleet.redis, Call(("KEYS", "arq:*"), list))
    assert all([await run(fleet.redis, Call(("PTTL", key), int)) > 0 for key in found])
