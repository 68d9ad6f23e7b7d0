"""Batches from file to file, on real protocol calls."""

import asyncio
import io
from pathlib import Path

import pytest
from redis.asyncio import Redis

from producer.batch import Progress, run_batch
from producer.batch.reconcile import Reconciler
from producer.fleet import Fleet
from protocol import errors, reads
from protocol.call import Call, run, run_sync
from protocol.states import Priority
from tests.conftest import Backend
from tests.producer.batch_files import by_id, leftovers, row, until_queued
from tests.producer.tiny import MODEL, TinyWorker, serving
from tests.support.builders import SHARD


async def test_each_row_has_one_line_and_nothing_is_left(
    fleet: Fleet, worker: TinyWorker, backend: Backend, redis: Redis, files: tuple[Path, Path]
) -> None:
    source, target = files
    source.write_text("".join(row(f"r{n}", f"say {n}") + "\n" for n in range(600)))
    seen: list[Progress] = []
    jobs: list[int] = []
    numbers: list[int] = []

    def look(progress: Progress) -> None:
        seen.append(progress)
        jobs.append(len(run_sync(backend.sync, Call(("KEYS", "*:job:*"), list))))

    running = asyncio.create_task(
        run_batch(fleet, source, target, window=50, on_progress=look, on_row=lambda done: numbers.append(done.number))
    )
    await until_queued(redis, 50)
    async with serving(worker):
        summary = await running
    lines = by_id(target)
    assert {name: line["response"]["body"]["choices"][0]["message"]["content"] for name, line in lines.items()} == {
        f"r{n}": f"say {n} " for n in range(600)
    }
    assert (summary.rows_in, summary.rows_out, summary.rows_failed, summary.tokens_out) == (600, 600, 0, 1_200)
    assert summary.jobs_by_worker == {"label-w1": 600}
    assert len(summary.queue_ms) == len(summary.ttft_ms) == 600
    assert max(jobs) <= 50
    assert len(jobs) > 10
    assert (seen[-1].rows_total, seen[-1].rows_out) == (600, 600)
    assert sorted(numbers) == list(range(1, 601))
    assert await leftovers(redis) == []


SEED = row("seed", seed=2**64)
MIXED = [
    row("good"),
    "not json",
    row("completion", url="/v1/completions"),
    row("refused", "refuse 400"),
    row("broken", "fail engine_fault"),
    row("empty", "x", messages=[]),
    row("nobody's", model="nobody"),
    row("streamed", stream=True),
    row("long", "word " * 10_000),
    SEED,
    row("separators", "one\u2028two\u2029three\u0085four"),
]


async def test_rows_of_every_fate_have_their_line(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]
) -> None:
    source, target = files
    source.write_bytes(b"\xef\xbb\xbf" + "\r\n\n".join(MIXED).encode())
    async with serving(worker):
        summary = await run_batch(fleet, source, target, on_invalid="skip")
    lines = by_id(target)
    assert len(lines) == len(MIXED) == summary.rows_in == summary.rows_out
    codes = {name: line["error"] and line["error"]["code"] for name, line in lines.items()}
    assert codes == {
        "good": None,
        "completion": "url_mismatch",
        "separators": None,
        "refused": None,
        "broken": "engine_fault",
        None: "invalid_json_line",
        "empty": "invalid_request",
        "nobody's": "model_mismatch",
        "streamed": "invalid_request",
        "long": "invalid_request",
        "seed": "invalid_request",
    }
    assert lines["refused"]["response"]["status_code"] == 400
    assert "line 3: " in lines[None]["error"]["message"]
    out_of_range = "body.seed: it must be an integer from -2^63 to 2^63 - 1"
    assert lines["seed"]["error"]["message"] == f"line {2 * MIXED.index(SEED) + 1}: {out_of_range}"
    assert summary.rows_failed == 9
    assert await leftovers(redis) == []


async def test_ids_are_any_texts(fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path]) -> None:
    source, target = files
    names = [
        "x" * 10_000,
        "new\nline",
        "nul\0",
        "nul\0more",
        "\U0001f600",
        " ",
        "\u202eback",
        "a\tb",
        "\u2028",
        "[red]",
    ]
    source.write_text("".join(row(name, f"say {n}") + "\n" for n, name in enumerate(names)))
    async with serving(worker):
        summary = await run_batch(fleet, source, target, order="input")
    assert (list(by_id(target)), summary.rows_failed) == (names, 0)
    assert not list(Reconciler(source, [target]).findings())


async def test_limit_model_and_priority_apply(
    fleet: Fleet, worker: TinyWorker, redis: Redis, files: tuple[Path, Path]
) -> None:
    source, target = files
    source.write_text("\n".join(row(f"r{n}", model="another") for n in range(10)))
    running = asyncio.create_task(run_batch(fleet, source, target, limit=3, model=MODEL, priority="low"))
    await until_queued(redis, 3, Priority.LOW)
    queued = await run(redis, reads.lane_head(SHARD, Priority.LOW, 3))
    specs = [(await run(redis, reads.waiting_job(SHARD, entry.ref))) for entry in queued]
    assert all(job and job.spec.best_effort for job in specs)  # nobody waits for a row: it is never refused
    async with serving(worker):
        summary = await running
    assert by_id(target).keys() == {"r0", "r1", "r2"}
    assert summary.rows_in == 3


async def test_an_empty_file_is_refused(fleet: Fleet, files: tuple[Path, Path]) -> None:
    source, target = files
    source.write_bytes(b"\n")
    with pytest.raises(errors.BatchInvalid) as refused:
        await run_batch(fleet, source, target)
    assert [problem.code for problem in refused.value.problems] == ["empty_file"]
    assert list(source.parent.iterdir()) == [source]


async def test_a_model_that_nobody_serves_is_refused_at_once(fleet: Fleet, files: tuple[Path, Path]) -> None:
    source, target = files
    source.write_text("\n" + row("r0", model="nobody"))
    for model in (None, "nothing"):
        with pytest.raises(errors.BatchInvalid) as refused:
            await run_batch(fleet, source, target, model=model, on_invalid="skip")
        assert [(problem.line, problem.code) for problem in refused.value.problems] == [(2, "unknown_model")]
    assert list(source.parent.iterdir()) == [source]


async def test_a_model_that_nobody_serves_is_skipped_and_never_waited_for(
    fleet: Fleet, worker: TinyWorker, files: tuple[Path, Path]
) -> None:
    source, target = files
    source.write_text("\n".join((row("a", model="nobody"), row("b"))))
    async with serving(worker):
        summary = await run_batch(fleet, source, target, on_invalid="skip")
    assert (summary.rows_out, summary.rows_failed, summary.model) == (2, 1, "m")
    assert by_id(target)["a"]["error"]["code"] == "unknown_model"


async def test_files_that_can_not_be_used_are_refused_and_nothing_is_overwritten(fleet: Fleet, tmp_path: Path) -> None:
    there, missing = tmp_path / "there", tmp_path / "missing"
    there.write_text("keep me")
    for source, target in ((there, there), (missing, there), (there, tmp_path / "no" / "folder")):
        with pytest.raises(errors.SetupError):
            await run_batch(fleet, source, target)
    for options in ({"limit": -1}, {"window": 0}, {"priority": "urgent"}, {"priority": "high"}, {"deadline": -1}):
        with pytest.raises(errors.InvalidRequest):
            await run_batch(fleet, there, tmp_path / "out", **options)
    assert there.read_text() == "keep me"


async def test_dashes_are_stdin_and_stdout(
    fleet: Fleet, worker: TinyWorker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source, target = tmp_path / "in", io.BytesIO()
    source.write_text(row("r0") + "\n" + row("r1"))
    with source.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(target, write_through=True))
        async with serving(worker):
            summary = await run_batch(fleet, "-", "-")
        lines = target.getvalue().splitlines()
    assert summary.rows_out == len(lines) == 2
