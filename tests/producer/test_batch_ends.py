"""Every end of a batch has exactly one line for each row; twins and what is resumed afterwards."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from producer.batch import desk, ends, retry_failed, run_batch
from producer.batch.course import Course
from producer.batch.results import Results
from producer.fleet import Fleet
from protocol import errors
from protocol.call import Call, run
from tests.producer.batch_files import by_id, leftovers, row, until_queued
from tests.producer.batch_runs import codes, counting, finished, kinds, lines_of, options, write_rows
from tests.producer.tiny import Attempt, TinyWorker, serving
from tests.support.waiting import eventually


@pytest.fixture(params=["completion", "input", "gz", "errors"])
def how(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    return kinds(tmp_path)[request.param]


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


async def test_a_task_that_is_cancelled_closes_its_files_though_redis_is_silent(
    fleet: Fleet, worker: TinyWorker, redis: Redis, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Debian's Python 3.11.2 too, where no time limit passes as such in the cancelled task itself."""

    async def unanswered(*_: object) -> None:
        await asyncio.Event().wait()

    write_rows(how["source"], 8)
    running = asyncio.create_task(run_batch(fleet, **options(how)))
    await until_queued(redis, 8)
    monkeypatch.setattr(ends, "WITHDRAW_S", 0.01)
    monkeypatch.setattr(Results, "withdraw", unanswered)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert list(codes(lines_of(how)).values()) == ["batch_cancelled"] * 8


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


async def test_more_failures_than_are_allowed_fail_a_batch_whose_rows_have_all_ended(
    fleet: Fleet, worker: TinyWorker, redis: Redis, how: dict[str, Any]
) -> None:
    """The engine answered the whole window before it heard of the withdrawal."""
    write_rows(how["source"], 6)
    running = asyncio.create_task(run_batch(fleet, **options(how), max_errors=2))
    await until_queued(redis, 6)
    attempts: list[Attempt] = []

    async def all_taken() -> bool:
        attempts.extend(await worker.take())
        return len(attempts) == 6

    await eventually(all_taken)
    # At once: the batch has no turn between them.
    await asyncio.gather(*(attempt.refuse(400) for attempt in attempts))
    summary = await running
    assert (summary.state, summary.rows_failed, summary.rows_unfinished) == ("failed", 6, 0)
    assert list(codes(lines_of(how)).values()).count("batch_failed") == 0

    summary = await run_batch(fleet, **options(how), max_errors=2, resume=True)
    assert (summary.state, summary.rows_failed, len(lines_of(how))) == ("completed", 6, 6)
    async with counting(worker):
        retried = await retry_failed(fleet, how["target"])
    assert (retried.state, retried.clean, len(lines_of(how))) == ("completed", True, 6)
    assert await leftovers(redis) == []


async def test_an_expired_batch_goes_on_with_a_new_deadline(
    fleet: Fleet, worker: TinyWorker, how: dict[str, Any]
) -> None:
    write_rows(how["source"], 6)
    running = asyncio.create_task(run_batch(fleet, **options(how), deadline=1.5))
    await finished(worker, running, how["work"], 2)
    summary = await running
    assert (summary.state, summary.rows_out, summary.rows_failed, summary.rows_unfinished) == ("expired", 2, 0, 4)
    assert list(codes(lines_of(how)).values()).count("batch_expired") == 4
    again = await run_batch(fleet, **options(how), resume=True)
    assert (again.state, again.rows_unfinished, len(lines_of(how))) == ("expired", 4, 6)
    async with serving(worker):
        again = await run_batch(fleet, **options(how), resume=True, deadline=60)
    assert (again.state, again.rows_out, len(lines_of(how))) == ("completed", 6, 6)


@pytest.mark.parametrize("keep", [False, True])
async def test_a_task_that_is_cancelled_as_soon_as_its_files_are_there_gives_each_row_its_line(
    fleet: Fleet, worker: TinyWorker, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch, *, keep: bool
) -> None:
    write_rows(how["source"], 8)
    go_on, seen, went_on = Course._go_on, asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slowly(course: Course) -> None:
        loop.call_soon_threadsafe(seen.set)
        went_on.wait(timeout=20)
        go_on(course)

    monkeypatch.setattr(Course, "_go_on", slowly)
    running = asyncio.create_task(run_batch(fleet, **options(how), keep=keep))
    await seen.wait()
    running.cancel()
    went_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    monkeypatch.undo()
    if not keep:
        assert list(codes(lines_of(how)).values()) == ["batch_cancelled"] * 8
    async with counting(worker) as prompts:
        assert (await run_batch(fleet, **options(how), resume=True)).rows_out == 8
    assert len(prompts) == 8
    assert list(codes(lines_of(how)).values()) == [None] * 8


async def test_a_batch_that_is_cancelled_before_it_is_validated_runs_nothing_and_can_not_go_on(
    fleet: Fleet, worker: TinyWorker, redis: Redis, how: dict[str, Any]
) -> None:
    how["source"].write_text(f"{row('r0')}\n{row('r1', max_tokens=0)}\n")
    cancel = asyncio.Event()
    cancel.set()
    summary = await run_batch(fleet, **options(how), cancel=cancel)
    assert (summary.state, summary.rows_in, summary.rows_out) == ("cancelled", 2, 0)
    assert set(codes(lines_of(how)).values()) == {"batch_cancelled"}
    assert await leftovers(redis) == []
    for again in (run_batch(fleet, **options(how), resume=True), retry_failed(fleet, how["target"])):
        with pytest.raises(errors.SetupError, match="before its input was validated"):
            await again


async def test_equal_bodies_at_temperature_0_run_once(fleet: Fleet, worker: TinyWorker, how: dict[str, Any]) -> None:
    how["source"].write_text(
        "".join(row(f"r{n}", f"say {n % 3}", temperature=0 if n < 9 else 1) + "\n" for n in range(12))
    )
    async with counting(worker, "say 1") as prompts:
        summary = await run_batch(fleet, **options(how), dedup=True)
    assert sorted(prompts) == sorted(f"say {n}" for n in range(3) for _ in range(2))
    lines = lines_of(how)
    assert (len(lines), summary.rows_deduped, summary.rows_failed) == (12, 6, 4)
    said = {name: line["response"]["body"] for name, line in lines.items()}
    assert said["r0"] == said["r3"] == said["r6"] != said["r2"]
    assert len({line["id"] for line in lines.values()}) == 12


async def test_others_go_on_while_many_twins_are_answered(
    fleet: Fleet, worker: TinyWorker, how: dict[str, Any]
) -> None:
    how["source"].write_text("".join(row(f"r{n}", "say so", temperature=0) + "\n" for n in range(2_000)))
    turns, seen = 0, set[int]()

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    async with serving(worker):
        summary = await run_batch(fleet, **options(how), dedup=True, on_progress=lambda _: seen.add(turns))
    other.cancel()
    assert (summary.rows_out, summary.rows_deduped, len(lines_of(how))) == (2_000, 1_999, 2_000)
    # Before the first page, then each of four, the rest of 500 twins each.
    assert len(seen) >= 5


async def test_twins_that_a_crash_left_behind_get_their_answer(
    fleet: Fleet, worker: TinyWorker, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    how["source"].write_text("".join(row(f"r{n}", "say so", temperature=0) + "\n" for n in range(5)))
    with monkeypatch.context() as patch:
        patch.setattr(desk, "as_twin", lambda *_: (_ for _ in ()).throw(errors.StoreFull("stopped")))
        async with serving(worker):
            with pytest.raises(errors.StoreFull):
                await run_batch(fleet, **options(how), dedup=True)
    async with counting(worker) as prompts:
        summary = await run_batch(fleet, **options(how), dedup=True, resume=True)
    assert (prompts, summary.rows_out, summary.rows_deduped) == ([], 5, 4)
    again = await run_batch(fleet, **options(how), dedup=True, resume=True)
    assert (again.rows_before, again.rows_deduped) == (5, 4)
    assert len({str(line["response"]["body"]) for line in lines_of(how).values()}) == 1


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
