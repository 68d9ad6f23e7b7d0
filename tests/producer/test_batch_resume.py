"""Batches that broke off, and go on: every line once, nothing that is done is done again."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from producer.batch import BatchSummary, desk, retry_failed, run_batch
from producer.batch.ledger import Ledger
from producer.fleet import Fleet
from protocol import errors
from protocol.call import Call, run
from tests.producer.batch_files import by_id, leftovers, row, until_queued, written
from tests.producer.tiny import Attempt, TinyWorker, serving
from tests.support.waiting import eventually


class Served:
    """A worker that counts its attempts by prompt, and can fail some."""

    def __init__(self, worker: TinyWorker, failing: frozenset[str] = frozenset()) -> None:
        self.worker, self.failing, self.prompts = worker, failing, list[str]()

    async def serve(self) -> None:
        while True:
            for attempt in await self.worker.take():
                self.prompts.append(attempt.prompt)
                await (attempt.refuse(400) if attempt.prompt in self.failing else attempt.echo())
            await asyncio.sleep(0)  # the batch has its turn


@asynccontextmanager
async def counting(worker: TinyWorker, *failing: str) -> AsyncIterator[list[str]]:
    served = Served(worker, frozenset(failing))
    task = asyncio.create_task(served.serve())
    try:
        yield served.prompts
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def write_rows(source: Path, count: int, **body: Any) -> None:
    source.write_text("".join(row(f"r{n}", f"say {n}", **body) + "\n" for n in range(count)))


async def finished(worker: TinyWorker, running: "asyncio.Task[BatchSummary]", target: Path, rows: int) -> list[Attempt]:
    """Answer so many rows; the others that were taken."""
    taken: list[Attempt] = []

    async def enough() -> bool:
        taken.extend(await worker.take())
        return len(taken) >= rows

    await eventually(enough)
    for attempt in taken[:rows]:
        await attempt.echo()
    await eventually(lambda: target.exists() and len(written(target)) >= rows)
    assert not running.done()
    return taken[rows:]


@pytest.fixture(params=["completion", "input", "gz", "errors"])
def how(request: pytest.FixtureRequest, files: tuple[Path, Path]) -> dict[str, Any]:
    """Options of a batch, and where its lines are appended while it runs."""
    source, target = files
    packed, work = target.with_name("out.jsonl.gz"), target.with_name("out.jsonl.part")
    kinds: dict[str, dict[str, Any]] = {
        "completion": {"target": target, "work": target},
        "input": {"target": target, "work": work, "order": "input"},
        "gz": {"target": packed, "work": packed.with_name("out.jsonl.gz.part"), "order": "input"},
        "errors": {"target": target, "work": target, "errors": target.with_name("err.jsonl")},
    }
    return kinds[request.param] | {"source": source}


def lines_of(how: dict[str, Any]) -> dict[str | None, Any]:
    """Every line of the output files, by id; each id once."""
    target: Path = how["target"]
    if target.suffix == ".gz":
        plain = target.with_suffix("")
        plain.write_bytes(gzip.decompress(target.read_bytes()))
        found = by_id(plain)
        plain.unlink()
    else:
        found = by_id(target)
    if "errors" in how:
        more = by_id(how["errors"])
        assert not found.keys() & more.keys()
        found |= more
    if how.get("order") == "input":
        assert list(found) == [f"r{n}" for n in range(len(found))]
    return found


def codes(lines: dict[str | None, Any]) -> dict[str | None, str | None]:
    return {name: line["error"] and line["error"]["code"] for name, line in lines.items()}


def options(how: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in how.items() if name != "work"}


async def test_five_fast_and_twenty_slow_rows_are_cancelled_and_resumed(
    fleet: Fleet, worker: TinyWorker, redis: Redis, how: dict[str, Any]
) -> None:
    write_rows(how["source"], 25)
    cancel = asyncio.Event()
    running = asyncio.create_task(run_batch(fleet, **options(how), cancel=cancel))
    await finished(worker, running, how["work"], 5)
    cancel.set()
    summary = await running
    assert (summary.state, summary.rows_out, summary.rows_failed, summary.rows_unfinished) == ("cancelled", 5, 0, 20)
    told = codes(lines_of(how))
    assert (list(told.values()).count(None), list(told.values()).count("batch_cancelled")) == (5, 20)
    assert await leftovers(redis) == []

    async with counting(worker) as prompts:
        summary = await run_batch(fleet, **options(how), resume=True)
    assert len(prompts) == 20
    assert (summary.state, summary.rows_out, summary.rows_before, summary.rows_failed) == ("completed", 25, 5, 0)
    assert set(codes(lines_of(how)).values()) == {None}
    assert len(lines_of(how)) == 25
    assert not [path for path in how["target"].parent.iterdir() if path.suffix in (".part", ".new")]
    assert await leftovers(redis) == []


async def test_a_task_that_is_cancelled_closes_its_files_too(
    fleet: Fleet, worker: TinyWorker, redis: Redis, how: dict[str, Any]
) -> None:
    write_rows(how["source"], 8)
    running = asyncio.create_task(run_batch(fleet, **options(how)))
    await finished(worker, running, how["work"], 3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert list(codes(lines_of(how)).values()).count("batch_cancelled") == 5
    assert await leftovers(redis) == []


async def test_a_batch_that_is_handed_over_goes_on_elsewhere(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]
) -> None:
    """Rows that were under way are found by their ids: none runs twice, and what ended meanwhile is taken."""
    source, target = files
    write_rows(source, 10)
    running = asyncio.create_task(run_batch(fleet, source, target, keep=True))
    taken = await finished(worker, running, target, 4)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(written(target)) == 4
    await taken[0].echo()
    await taken[1].refuse(400)
    resumed = asyncio.create_task(run_batch(fleet, source, target, resume=True))
    for attempt in taken[2:]:
        await attempt.echo()
    summary = await resumed
    assert (summary.rows_out, summary.rows_failed, len(by_id(target))) == (10, 1, 10)
    assert await leftovers(redis) == []


async def test_a_torn_line_is_cut_off_and_a_whole_one_is_taken_over(
    fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill between a write and its commit: what stands whole is not run again."""
    source, target = files
    write_rows(source, 6)
    done = Ledger.done
    monkeypatch.setattr(Ledger, "done", lambda *_: (_ for _ in ()).throw(errors.StoreFull("stopped")))
    async with counting(worker) as ran_before:
        with pytest.raises(errors.StoreFull):
            await run_batch(fleet, source, target)
    monkeypatch.setattr(Ledger, "done", done)
    before = written(target)
    assert before
    with target.open("ab") as file:
        file.write(target.read_bytes()[:50])
    async with counting(worker) as prompts:
        summary = await run_batch(fleet, source, target, resume=True)
    assert sorted(ran_before + prompts) == [f"say {n}" for n in range(6)]
    assert written(target)[: len(before)] == before
    assert (summary.rows_out, summary.tokens_out, len(by_id(target))) == (6, 12, 6)


async def test_lines_that_a_power_cut_took_are_written_again(
    fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path]
) -> None:
    source, target = files
    write_rows(source, 6)
    cancel = asyncio.Event()
    running = asyncio.create_task(run_batch(fleet, source, target, cancel=cancel))
    await finished(worker, running, target, 4)
    cancel.set()
    await running
    lines = target.read_bytes().splitlines(keepends=True)
    target.write_bytes(b"".join(lines[:2]) + lines[2][:20])
    async with counting(worker) as prompts:
        summary = await run_batch(fleet, source, target, resume=True)
    assert (len(prompts), summary.rows_out, len(by_id(target))) == (4, 6, 6)


async def test_resuming_what_is_done_does_nothing(fleet: Fleet, worker: TinyWorker, how: dict[str, Any]) -> None:
    write_rows(how["source"], 3)
    async with serving(worker):
        await run_batch(fleet, **options(how))
    before = how["target"].read_bytes()
    summary = await run_batch(fleet, **options(how), resume=True)
    assert (summary.state, summary.rows_out, summary.rows_before) == ("completed", 3, 3)
    assert how["target"].read_bytes() == before
    assert not how["work"].exists() or how["work"] == how["target"]


async def test_resume_begins_where_there_was_nothing(
    fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path]
) -> None:
    source, target = files
    write_rows(source, 3)
    async with serving(worker):
        assert (await run_batch(fleet, source, target, resume=True)).rows_out == 3


async def test_what_can_not_be_resumed_is_refused(fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path]) -> None:
    source, target = files
    write_rows(source, 4)
    async with serving(worker):
        await run_batch(fleet, source, target, limit=3)
    before = target.read_bytes()
    with pytest.raises(errors.SetupError, match="exists"):
        await run_batch(fleet, source, target, limit=3)
    for changes in ({"order": "input"}, {"dedup": True}, {"limit": 4}, {"errors": target.with_name("err")}):
        with pytest.raises(errors.SetupError, match="other options"):
            await run_batch(fleet, source, target, resume=True, **({"limit": 3} | changes))
    write_rows(source, 5)
    with pytest.raises(errors.InputChanged):
        await run_batch(fleet, source, target, limit=3, resume=True)
    target.with_name("out.jsonl.state").unlink()
    with pytest.raises(errors.SetupError, match="state is not there"):
        await run_batch(fleet, source, target, limit=3, resume=True)
    with pytest.raises(errors.SetupError, match="pipe"):
        await run_batch(fleet, source, "-", resume=True)
    with pytest.raises(errors.InvalidRequest):
        await run_batch(fleet, source, target, resume=True, overwrite=True)
    assert target.read_bytes() == before


async def test_overwriting_replaces_only_what_a_good_input_replaces(
    fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path]
) -> None:
    source, target = files
    target.write_text("old\n")
    source.write_text("no row\n")
    with pytest.raises(errors.BatchInvalid):
        await run_batch(fleet, source, target, overwrite=True)
    assert target.read_text() == "old\n"
    write_rows(source, 2)
    async with serving(worker):
        await run_batch(fleet, source, target, overwrite=True)
    assert len(by_id(target)) == 2


async def test_a_batch_is_given_up_after_so_many_failures(
    fleet: Fleet, worker: TinyWorker, redis: Redis, how: dict[str, Any]
) -> None:
    write_rows(how["source"], 12)
    async with counting(worker, *(f"say {n}" for n in range(12))):
        summary = await run_batch(fleet, **options(how), max_errors=3, window=2)
    assert (summary.state, summary.clean) == ("failed", False)
    assert 4 <= summary.rows_failed < 12
    told = codes(lines_of(how))
    assert list(told.values()).count("batch_failed") == summary.rows_unfinished == 12 - summary.rows_failed
    assert await leftovers(redis) == []

    async with counting(worker):
        summary = await run_batch(fleet, **options(how), max_errors=0, resume=True)
    assert (summary.state, summary.rows_out, len(lines_of(how))) == ("completed", 12, 12)


async def test_an_expired_batch_goes_on_with_a_new_deadline(
    fleet: Fleet, worker: TinyWorker, how: dict[str, Any]
) -> None:
    write_rows(how["source"], 6)
    running = asyncio.create_task(run_batch(fleet, **options(how), deadline=0.4))
    await finished(worker, running, how["work"], 2)
    summary = await running
    assert (summary.state, summary.rows_out, summary.rows_failed, summary.rows_unfinished) == ("expired", 2, 0, 4)
    assert list(codes(lines_of(how)).values()).count("batch_expired") == 4
    again = await run_batch(fleet, **options(how), resume=True)
    assert (again.state, again.rows_unfinished, len(lines_of(how))) == ("expired", 4, 6)
    async with serving(worker):
        again = await run_batch(fleet, **options(how), resume=True, deadline=60)
    assert (again.state, again.rows_out, len(lines_of(how))) == ("completed", 6, 6)


async def test_equal_bodies_at_temperature_0_run_once(fleet: Fleet, worker: TinyWorker, how: dict[str, Any]) -> None:
    how["source"].write_text(
        "".join(row(f"r{n}", f"say {n % 3}", temperature=0 if n < 9 else 1) + "\n" for n in range(12))
    )
    async with counting(worker, "say 1") as prompts:
        summary = await run_batch(fleet, **options(how), dedup=True)
    assert sorted(prompts) == sorted(f"say {n}" for n in range(3) for _ in range(2))
    lines = lines_of(how)
    assert (len(lines), summary.rows_cached, summary.rows_failed) == (12, 6, 4)
    said = {name: line["response"]["body"] for name, line in lines.items()}
    assert said["r0"] == said["r3"] == said["r6"] != said["r2"]
    assert len({line["id"] for line in lines.values()}) == 12


async def test_twins_that_a_crash_left_behind_get_their_answer(
    fleet: Fleet, worker: TinyWorker, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    how["source"].write_text("".join(row(f"r{n}", "say so", temperature=0) + "\n" for n in range(5)))
    with monkeypatch.context() as patch:
        patch.setattr(desk.Desk, "_fan_out", lambda *_: (_ for _ in ()).throw(errors.StoreFull("stopped")))
        async with serving(worker):
            with pytest.raises(errors.StoreFull):
                await run_batch(fleet, **options(how), dedup=True)
    async with counting(worker) as prompts:
        summary = await run_batch(fleet, **options(how), dedup=True, resume=True)
    assert (prompts, summary.rows_out, summary.rows_cached) == ([], 5, 4)
    assert len({str(line["response"]["body"]) for line in lines_of(how).values()}) == 1


async def test_failed_rows_run_again_in_place_of_their_lines(
    fleet: Fleet, worker: TinyWorker, redis: Redis, how: dict[str, Any]
) -> None:
    write_rows(how["source"], 10)
    async with counting(worker, "say 2", "say 5"):
        summary = await run_batch(fleet, **options(how))
    assert (summary.rows_failed, summary.clean) == (2, False)
    async with counting(worker, "say 5") as prompts:
        summary = await retry_failed(fleet, how["target"])
    assert sorted(prompts) == ["say 2", "say 5"]
    assert (summary.state, summary.rows_out, summary.rows_failed, summary.rows_before) == ("completed", 10, 1, 8)
    lines = lines_of(how)
    assert [name for name, line in lines.items() if line["response"]["status_code"] == 400] == ["r5"]
    async with counting(worker) as prompts:
        summary = await retry_failed(fleet, how["target"])
    assert (prompts, summary.clean, len(lines_of(how))) == (["say 5"], True, 10)
    async with counting(worker) as prompts:
        summary = await retry_failed(fleet, how["target"])
    assert (prompts, summary.clean, len(lines_of(how))) == ([], True, 10)
    assert await leftovers(redis) == []


async def test_a_retry_that_broke_off_is_resumed(
    fleet: Fleet, worker: TinyWorker, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are written anew, and the ledger does not know yet where lines stand now."""
    write_rows(how["source"], 10)
    async with counting(worker, "say 2", "say 5"):
        await run_batch(fleet, **options(how))
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "move", lambda *_: (_ for _ in ()).throw(errors.StoreFull("stopped")))
        with pytest.raises(errors.StoreFull):
            await retry_failed(fleet, how["target"])
    async with counting(worker) as prompts:
        summary = await run_batch(fleet, **options(how), resume=True)
    assert sorted(prompts) == ["say 2", "say 5"]
    assert (summary.clean, len(lines_of(how))) == (True, 10)


async def test_a_batch_that_runs_is_not_run_twice(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]
) -> None:
    source, target = files
    write_rows(source, 3)
    running = asyncio.create_task(run_batch(fleet, source, target))
    await until_queued(redis, 3)
    for again in (run_batch(fleet, source, target, resume=True), retry_failed(fleet, target)):
        with pytest.raises(errors.SetupError, match="in use"):
            await again
    async with serving(worker):
        assert (await running).rows_out == 3


async def test_a_row_that_kills_engines_is_set_aside_alone(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]
) -> None:
    source, target = files
    source.write_text("\n".join((row("bad", "fail struck_out"), row("good"))))
    async with serving(worker):
        summary = await run_batch(fleet, source, target)
    assert codes(by_id(target)) == {"bad": "struck_out", "good": None}
    assert summary.rows_failed == 1
    assert await run(redis, Call(("KEYS", "*:result:*"), list)) == []
