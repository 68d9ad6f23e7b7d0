"""Failed rows that run again."""

import resource
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from producer.batch import retry_failed, run_batch
from producer.batch.failed_rows import write_failed
from producer.batch.ledger import Ledger
from producer.fleet import Fleet
from protocol import errors
from tests.producer.batch_files import by_id, leftovers, row
from tests.producer.batch_runs import counting, kinds, lines_of, options, write_rows
from tests.producer.tiny import TinyWorker


@pytest.fixture(params=["completion", "input", "gz", "errors"])
def how(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    return kinds(tmp_path)[request.param]


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


async def test_retrying_when_the_output_is_gone_makes_it_again(
    fleet: Fleet, worker: TinyWorker, how: dict[str, Any]
) -> None:
    write_rows(how["source"], 4)
    async with counting(worker, "say 2"):
        await run_batch(fleet, **options(how))
    how["target"].unlink()
    async with counting(worker) as prompts:
        summary = await retry_failed(fleet, how["target"])
    assert "say 2" in prompts
    assert (summary.clean, summary.rows_out, len(lines_of(how))) == (True, 4, 4)


async def test_a_full_disk_before_a_retry_is_told_and_mended(
    fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path]
) -> None:
    source, target = files
    source.write_text("".join(row(f"r{n}", f"{n} " + "long " * 3_000) + "\n" for n in range(12)))
    async with counting(worker, "0 " + "long " * 3_000):
        assert (await run_batch(fleet, source, target, order="input")).rows_failed == 1
    before, (soft, hard) = target.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, hard))
    try:
        with pytest.raises(errors.OutputFailed, match="can't be written"):
            await retry_failed(fleet, target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert target.read_bytes() == before
    async with counting(worker) as prompts:
        summary = await retry_failed(fleet, target)
    assert (len(prompts), summary.clean, len(by_id(target))) == (1, True, 12)


async def test_that_rows_would_fail_again_is_known_later_too(
    fleet: Fleet, worker: TinyWorker, how: dict[str, Any]
) -> None:
    write_rows(how["source"], 4)
    async with counting(worker, "say 2"):
        ran = await run_batch(fleet, **options(how))
        again = await run_batch(fleet, **options(how), resume=True)
        retried = await retry_failed(fleet, how["target"])
    assert [(one.rows_failed, one.rows_refused) for one in (ran, again, retried)] == [(1, 1)] * 3
    async with counting(worker):
        assert (await retry_failed(fleet, how["target"])).clean


async def test_failed_rows_are_mended_and_run_to_an_output_of_their_own(
    fleet: Fleet, worker: TinyWorker, how: dict[str, Any], tmp_path: Path
) -> None:
    """Those that the engine refused, and lines that are no requests, with and without an id."""
    source, again = how["source"], tmp_path / "again.jsonl"
    bad = row("late", url="/v1/nothing")
    given = [row("r0", "say 0"), row("r1", "say 1"), "no json", bad, row("r0", "twice"), row("r2", "say 2")]
    source.write_text("".join(f"{line}\n" for line in given))
    async with counting(worker, "say 1"):
        await run_batch(fleet, **options(how), on_invalid="skip")
    results = [how["target"], *([how["errors"]] if "errors" in how else [])]
    assert write_failed(source, results, again) == 4
    assert again.read_text().splitlines() == given[1:5]
    with pytest.raises(errors.SetupError, match="exists"):
        write_failed(source, results, again)
    again.write_text(given[1] + "\n")
    async with counting(worker):
        assert (await run_batch(fleet, again, tmp_path / "again-out.jsonl")).clean
