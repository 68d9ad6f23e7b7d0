"""Batches that broke off, and go on: every line once, nothing that is done is done again."""

import asyncio
import resource
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from producer.batch import retry_failed, run_batch
from producer.batch.ledger import Ledger
from producer.fleet import Fleet
from protocol import errors
from tests.producer.batch_files import by_id, leftovers, row, until_queued, written
from tests.producer.batch_runs import counting, finished, kinds, lines_of, options, stopped_after_four, write_rows
from tests.producer.tiny import TinyWorker, serving


@pytest.fixture(params=["completion", "input", "gz", "errors"])
def how(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    return kinds(tmp_path)[request.param]


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
    # A row that was under way when the run broke off was withdrawn, and runs again; one whose line stands does not.
    assert {*ran_before, *prompts} == {f"say {n}" for n in range(6)}
    assert not set(prompts) & {f"say {line['custom_id'].removeprefix('r')}" for line in before}
    assert len(set(prompts)) == len(prompts)
    assert written(target)[: len(before)] == before
    assert (summary.rows_out, summary.tokens_out, len(by_id(target))) == (6, 12, 6)


async def test_rows_that_a_broken_run_has_withdrawn_run_again(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not tell anybody any more: the notices of their cancellation are still there."""
    source, target = files
    write_rows(source, 6)
    running = asyncio.create_task(run_batch(fleet, source, target))
    await until_queued(redis, 6)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "done", lambda *_: (_ for _ in ()).throw(errors.StoreFull("stopped")))
        first, *_ = await worker.take()
        await first.echo()
        with pytest.raises(errors.StoreFull):
            await running
    async with counting(worker) as prompts:
        summary = await run_batch(fleet, source, target, resume=True)
    assert (len(prompts), summary.rows_out, summary.rows_failed, len(by_id(target))) == (5, 6, 0, 6)
    assert await leftovers(redis) == []


async def test_lines_that_a_power_cut_took_are_written_again(
    fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path]
) -> None:
    source, target = files
    await stopped_after_four(fleet, worker, source, target)
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


@pytest.mark.parametrize("left", [None, 1])
async def test_an_output_that_was_lost_after_the_end_is_made_again(
    fleet: Fleet, worker: TinyWorker, how: dict[str, Any], left: int | None
) -> None:
    """Deleted, or cut by a power cut: it is not taken for a batch that is done."""
    write_rows(how["source"], 3)
    async with serving(worker):
        await run_batch(fleet, **options(how))
    if left is None or how["work"] != how["target"]:
        how["target"].unlink()
    else:
        how["target"].write_bytes(how["target"].read_bytes().splitlines(keepends=True)[0])
    async with serving(worker):
        summary = await run_batch(fleet, **options(how), resume=True)
    assert (summary.state, summary.rows_out, len(lines_of(how))) == ("completed", 3, 3)


async def test_rows_that_are_done_are_not_thrown_away_without_a_word(
    fleet: Fleet, worker: TinyWorker, how: dict[str, Any]
) -> None:
    """Killed in the middle: in the input's order, or packed, nothing stands under the output's own name yet."""
    write_rows(how["source"], 6)
    running = asyncio.create_task(run_batch(fleet, **options(how), keep=True))
    taken = await finished(worker, running, how["work"], 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    for attempt in taken:
        await attempt.echo()
    with pytest.raises(errors.SetupError, match="exists"):
        await run_batch(fleet, **options(how))
    async with serving(worker):
        summary = await run_batch(fleet, **options(how), resume=True)
    assert (summary.rows_before, summary.rows_out) == (2, 6)


@pytest.mark.parametrize("ending", [".state", ".part", ".input", ".new", ".state.new"])
async def test_an_input_is_no_file_that_belongs_to_the_output(
    fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path], ending: str
) -> None:
    source = files[1].with_name(files[1].name + ending)
    source.write_text("bad\n")
    with pytest.raises(errors.SetupError, match="beside"):
        await run_batch(fleet, source, files[1], overwrite=True)
    assert source.read_text() == "bad\n"


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
    changed: list[tuple[dict[str, Any], str]] = [
        ({"order": "input"}, "order was completion and is input now"),
        ({"dedup": True}, "dedup was not given and is given now"),
        ({"limit": 4}, "limit was 3 and is 4 now.*run the whole input to another output"),
        ({"limit": None}, "limit was 3 and is not given now"),
        ({"errors": target.with_name("err")}, "errors was not given and is /.*err now"),
    ]
    for changes, words in changed:
        with pytest.raises(errors.SetupError, match=f"(?s)other options: {words}"):
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
    write_rows(source, 3)
    async with serving(worker):
        await run_batch(fleet, source, target)
    before, other = target.read_bytes(), source.with_name("bad.jsonl")
    other.write_text("no row\n")
    with pytest.raises(errors.BatchInvalid):
        await run_batch(fleet, other, target, overwrite=True)
    assert target.read_bytes() == before
    assert (await run_batch(fleet, source, target, resume=True)).was_over
    assert {path.name for path in target.parent.glob("out*")} == {target.name, f"{target.name}.state"}
    write_rows(source, 2)
    async with serving(worker):
        await run_batch(fleet, source, target, overwrite=True)
    assert len(by_id(target)) == 2


async def test_outputs_that_are_links_stay_links(fleet: Fleet, worker: TinyWorker, how: dict[str, Any]) -> None:
    """Also when failed rows run again, and when all is replaced."""
    write_rows(how["source"], 3)
    outputs = [path for path in (how["target"], how.get("errors")) if path]
    for path in outputs:
        path.symlink_to(path.with_name(f"real-{path.name}"))
    async with counting(worker, "say 1"):
        await run_batch(fleet, **options(how))
    async with serving(worker):
        assert (await retry_failed(fleet, how["target"])).rows_failed == 0
        assert len(lines_of(how)) == 3
        await run_batch(fleet, **options(how), overwrite=True)
    assert len(lines_of(how)) == 3
    assert all(path.is_symlink() for path in outputs)


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


async def test_a_full_disk_tears_no_line_and_the_batch_goes_on_later(
    fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path]
) -> None:
    source, target = files
    source.write_text("".join(row(f"r{n}", f"{n} " + "long " * 3_000) + "\n" for n in range(30)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with counting(worker):
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, hard))
        try:
            with pytest.raises(errors.OutputFailed, match="can't be written"):
                await run_batch(fleet, source, target, window=4)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert 0 < len(by_id(target)) < 30
    assert target.read_bytes().endswith(b"\n")
    async with counting(worker):
        summary = await run_batch(fleet, source, target, window=4, resume=True)
    assert (summary.rows_out, summary.rows_failed, len(by_id(target))) == (30, 0, 30)
