"""Batches in several forms, and a worker that counts what it runs."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from producer.batch import BatchSummary, run_batch
from producer.fleet import Fleet
from tests.producer.batch_files import by_id, row, written
from tests.producer.tiny import Attempt, TinyWorker
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


def kinds(folder: Path) -> dict[str, dict[str, Any]]:
    """Options of a batch by its form; `work`: where its lines are appended while it runs."""
    source, target = folder / "in.jsonl", folder / "out.jsonl"
    packed, work = folder / "out.jsonl.gz", folder / "out.jsonl.part"
    found: dict[str, dict[str, Any]] = {
        "completion": {"target": target, "work": target},
        "input": {"target": target, "work": work, "order": "input"},
        "gz": {"target": packed, "work": folder / "out.jsonl.gz.part", "order": "input"},
        "errors": {"target": target, "work": target, "errors": folder / "err.jsonl"},
    }
    return {name: options | {"source": source} for name, options in found.items()}


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


async def stopped_after_four(fleet: Fleet, worker: TinyWorker, source: Path, target: Path) -> None:
    """A batch of six rows that was cancelled once four were answered."""
    write_rows(source, 6)
    cancel = asyncio.Event()
    running = asyncio.create_task(run_batch(fleet, source, target, cancel=cancel))
    await finished(worker, running, target, 4)
    cancel.set()
    await running
