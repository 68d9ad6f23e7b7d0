"""A batch that runs in the caller's process: its lines as they come, its progress, one row's tokens live."""

import asyncio
from pathlib import Path

import pytest
from redis.asyncio import Redis

from producer.batch.live import BatchRun
from producer.fleet import Fleet
from protocol.errors import BatchInvalid, InvalidRequest, SetupError, UnknownJob
from tests.producer.batch_files import by_id, leftovers, row, until_queued
from tests.producer.tiny import TinyWorker, serving


def wrote(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(rows))
    return path


async def test_lines_come_while_it_runs(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]
) -> None:
    source, target = wrote(files[0], *(row(f"r{n}", f"say {n}") for n in range(4))), files[1]
    async with fleet.batches.run(source, target) as batch:
        lines = aiter(batch)
        await until_queued(redis, 4)
        attempts = await worker.take()
        for attempt in reversed(attempts):
            await attempt.echo()
            line = await anext(lines)
            assert line["response"]["body"]["choices"][0]["message"]["content"] == f"{attempt.prompt} "
        assert [line async for line in lines] == []
        summary = await batch.summary()
    assert (summary.rows_out, summary.rows_failed) == (4, 0)
    assert batch.progress
    assert (batch.progress.rows_total, batch.progress.rows_out) == (4, 4)
    assert summary.batch_id == batch.batch_id
    assert set(by_id(target)) == {"r0", "r1", "r2", "r3"}


async def test_in_the_inputs_order_they_come_at_the_end(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]
) -> None:
    source = wrote(files[0], *(row(f"r{n}", f"say {n}") for n in range(4)))
    async with fleet.batches.run(source, files[1], order="input") as batch:
        await until_queued(redis, 4)
        for attempt in reversed(await worker.take()):
            await attempt.echo()
        assert [line["custom_id"] async for line in batch] == ["r0", "r1", "r2", "r3"]


async def test_failed_rows_come_from_their_own_file(
    fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path], tmp_path: Path
) -> None:
    source = wrote(files[0], row("good", "say a"), row("bad", "refuse 400"))
    async with serving(worker), fleet.batches.run(source, files[1], errors=tmp_path / "err.jsonl") as batch:
        codes = {line["custom_id"]: line["response"]["status_code"] async for line in batch}
    assert codes == {"good": 200, "bad": 400}


async def test_one_rows_tokens_live(fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]) -> None:
    source, target = wrote(files[0], row("a", "one two"), row("b", "three four")), files[1]
    async with fleet.batches.run(source, target, stream=True) as batch:
        text = batch.text(2)
        begun = asyncio.ensure_future(anext(text))
        await until_queued(redis, 2)
        attempts = {attempt.handle: attempt for attempt in await worker.take()}
        mine = attempts.pop(await batch.handle(2))
        await mine.say("three ")
        assert await begun == "three "
        await mine.say("four ")
        assert await anext(text) == "four "
        await mine.finish()
        assert [piece async for piece in text] == []
        (other,) = attempts.values()
        await other.echo()
    found = by_id(target)
    assert found["b"]["response"]["body"]["choices"][0]["message"]["content"] == "three four "


async def test_the_rows_of_a_batch_that_is_resumed_are_found(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]
) -> None:
    """It keeps the id that it began with, and its jobs are named by that."""
    source, target = wrote(files[0], row("a", "one"), row("b", "two")), files[1]

    async def leave() -> None:
        async with fleet.batches.run(source, target, keep=True):
            await until_queued(redis, 2)
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        await leave()
    async with fleet.batches.run(source, target, resume=True) as batch:
        finding = asyncio.ensure_future(batch.handle(2))
        attempts = {attempt.handle: attempt for attempt in await worker.take()}
        async with asyncio.timeout(20):
            assert attempts[await finding].prompt == "two"
        for attempt in attempts.values():
            await attempt.echo()
    assert batch.batch_id == (await batch.summary()).batch_id


async def test_leaving_early_breaks_it_off(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]
) -> None:
    source, target = wrote(files[0], *(row(f"r{n}") for n in range(4))), files[1]

    async def leave() -> None:
        async with fleet.batches.run(source, target):
            await until_queued(redis, 4)
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        await leave()
    assert {line["error"]["code"] for line in by_id(target).values()} == {"batch_cancelled"}
    assert await leftovers(redis) == []


async def test_what_it_raises_comes_to_whoever_waits(
    fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path]
) -> None:
    source, target = wrote(files[0], "no json"), files[1]

    async def read() -> list[object]:
        async with fleet.batches.run(source, target) as batch:
            return [line async for line in batch]

    async def look() -> None:
        async with fleet.batches.run(source, target) as batch:
            with pytest.raises(UnknownJob):
                await batch.handle(1)

    for wait in (read, look):
        with pytest.raises(BatchInvalid):
            await wait()


async def left_by(fleet: Fleet, redis: Redis, worker: TinyWorker, files: tuple[Path, Path], how: str) -> BatchRun:
    """A block of which each kind of end is one word."""
    async with fleet.batches.run(*files, window=4) as batch:
        await until_queued(redis, 4)
        for attempt in await worker.take():
            await attempt.echo()
        async for _ in batch:
            if how == "return":
                return batch
            break
    return batch


@pytest.mark.parametrize("how", ["return", "break"])
async def test_an_iteration_that_is_left_breaks_it_off(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path], how: str
) -> None:
    """The first four rows were answered, and nobody would answer the others."""
    wrote(files[0], *(row(f"r{n}") for n in range(20)))
    async with asyncio.timeout(10):
        batch = await left_by(fleet, redis, worker, files, how)
    lines = by_id(files[1])
    assert [line["error"] and line["error"]["code"] for line in lines.values()].count("batch_cancelled") == 16
    assert (len(lines), await leftovers(redis)) == (20, [])
    with pytest.raises(InvalidRequest, match="broken off"):
        await batch.summary()
    async with serving(worker), fleet.batches.run(*files, resume=True) as batch:
        pass
    assert (await batch.summary()).rows_before == 4


async def test_a_block_that_waited_for_the_end_may_have_left_the_lines(
    fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path]
) -> None:
    wrote(files[0], *(row(f"r{n}") for n in range(20)))
    async with serving(worker), fleet.batches.run(*files) as batch:
        async for _ in batch:
            break
        assert (await batch.summary()).rows_out == 20
    assert (await batch.summary()).rows_failed == 0


async def test_packed_lines_come_at_the_end(
    fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path], tmp_path: Path
) -> None:
    source = wrote(files[0], row("good", "say a"), row("bad", "refuse 400"))
    out, err = tmp_path / "out.jsonl.gz", tmp_path / "err.jsonl"
    async with serving(worker), fleet.batches.run(source, out, errors=err) as batch:
        assert {line["custom_id"] async for line in batch} == {"good", "bad"}


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
async def test_a_file_that_is_there_is_not_taken_for_its_own(
    fleet: Fleet, files: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    target, heard = tmp_path / name, []
    target.write_text('{"custom_id": "of another"}\n')

    async def read() -> None:
        async with fleet.batches.run(wrote(files[0], row("a")), target) as batch:
            heard.extend([line async for line in batch])

    with pytest.raises(SetupError, match="exists"):
        await read()
    assert heard == []


async def test_stdout_cant_be_read(fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]) -> None:
    async def read() -> None:
        async with fleet.batches.run(wrote(files[0], row("a")), "-") as batch:
            await anext(aiter(batch))

    with pytest.raises(InvalidRequest, match="stdout"):
        await read()
    assert await leftovers(redis) == []


async def test_it_must_be_entered(fleet: Fleet, files: tuple[Path, Path]) -> None:
    with pytest.raises(InvalidRequest, match="async with"):
        await fleet.batches.run(*files).summary()
