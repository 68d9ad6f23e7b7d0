"""What the tests of batches as a service share: submitting, owning, looking."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from openai.types import Batch

from producer.batch.service.owner import Terms
from producer.batch.service.serve import serve
from producer.batch.store import FileStore
from producer.fleet import Fleet
from protocol.batches import BatchName, BatchRecord, BatchStatus

TERMS = Terms(lease_s=0.6, keep_s=3_600, notify=True)


def wrote(source: Path, *rows: str) -> Path:
    source.write_text("\n".join(rows))
    return source


async def submitted(fleet: Fleet, source: Path, *rows: str, **options: Any) -> BatchName:
    wrote(source, *rows)
    return (await fleet.batches.submit(source, **options)).name


async def seen(fleet: Fleet, name: BatchName) -> BatchRecord:
    """The record; OpenAI's own type must accept it whatever its state is."""
    record = await fleet.batches.get(name.id)
    assert Batch.model_validate(record.as_json(), strict=True).status == record.status
    return record


async def lines(fleet: Fleet, name: BatchName) -> dict[str, dict[str, Any]]:
    """Output and error lines by custom id: each once."""
    found = [line async for line in fleet.batches.results(name.id)]
    by_id = {line["custom_id"]: line for line in found}
    assert len(by_id) == len(found)
    return by_id


@asynccontextmanager
async def owned(fleet: Fleet, store: FileStore, name: BatchName) -> "AsyncIterator[asyncio.Task[BatchStatus | None]]":
    """A runner's job for the length of a block."""
    task = asyncio.create_task(serve(fleet, store, name, TERMS))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def counts(record: BatchRecord) -> tuple[int, int, int]:
    return record.counts.total, record.counts.completed, record.counts.failed
