"""Files of a batch that somebody else writes to, or that a kill left under another name."""

import asyncio
import gzip
from pathlib import Path

import pytest
from redis.asyncio import Redis

from producer.batch import run_batch
from producer.fleet import Fleet
from protocol import errors
from tests.producer.batch_files import by_id, row, until_queued, written
from tests.producer.batch_runs import counting, stopped_after_four, write_rows
from tests.producer.tiny import TinyWorker, serving


async def test_an_output_that_somebody_else_has_changed_is_left_alone(
    fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path]
) -> None:
    """As by an editor: going on by the places that the ledger knows would cut through its lines."""
    source, target = files
    await stopped_after_four(fleet, worker, source, target)
    whole = target.read_bytes()
    changed = b"".join(whole.splitlines(keepends=True)[1:])
    target.write_bytes(changed)
    with pytest.raises(errors.SetupError, match="not what the batch has written"):
        await run_batch(fleet, source, target, resume=True)
    assert target.read_bytes() == changed
    target.write_bytes(whole)
    async with counting(worker) as prompts:
        await run_batch(fleet, source, target, resume=True)
    assert (len(prompts), len(by_id(target))) == (2, 6)


async def test_two_batches_never_write_to_one_error_file(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path], tmp_path: Path
) -> None:
    source, target = files
    write_rows(source, 3)
    shared = tmp_path / "errors"
    running = asyncio.create_task(run_batch(fleet, source, target, errors=shared))
    await until_queued(redis, 3)
    with pytest.raises(errors.SetupError, match="in use"):
        await run_batch(fleet, source, tmp_path / "other", errors=shared, overwrite=True)
    async with counting(worker, "say 1"):
        await running
    assert (len(written(shared)), len(written(target))) == (1, 2)


async def test_an_output_that_is_deleted_while_the_batch_runs_is_told_and_made_anew(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]
) -> None:
    """Its lines went to a file without a name: a batch that ends well has its output."""
    source, target = files
    write_rows(source, 3)
    running = asyncio.create_task(run_batch(fleet, source, target))
    await until_queued(redis, 3)
    target.unlink()
    async with serving(worker):
        with pytest.raises(errors.OutputFailed, match="deleted or replaced"):
            await running
        assert (await run_batch(fleet, source, target, resume=True)).clean
    assert len(by_id(target)) == 3


async def test_two_batches_never_grow_into_one_output_by_two_names(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]
) -> None:
    """By a symbolic link; in the input's order the output itself is not there before the end."""
    source, target = files
    write_rows(source, 3)
    link = target.with_name("link")
    link.symlink_to(target)
    running = asyncio.create_task(run_batch(fleet, source, target, order="input"))
    await until_queued(redis, 3)
    with pytest.raises(errors.SetupError, match="in use"):
        await run_batch(fleet, source, link, order="input")
    async with serving(worker):
        assert (await running).clean
    assert len(by_id(target)) == 3


def broken_off() -> None:
    raise asyncio.CancelledError


async def test_a_spool_that_a_kill_left_under_its_first_name_is_found(
    fleet: Fleet, worker: TinyWorker, tmp_path: Path
) -> None:
    """The state takes its place first, then the spool: between the two the batch is whole all the same."""
    source, target, spool = tmp_path / "in.gz", tmp_path / "out", tmp_path / "out.input"
    source.write_bytes(gzip.compress(row("a").encode()))
    with pytest.raises(asyncio.CancelledError):
        await run_batch(fleet, source, target, on_progress=lambda _: broken_off())
    spool.rename(tmp_path / "out.input.new")
    async with serving(worker):
        assert (await run_batch(fleet, source, target, resume=True)).clean
