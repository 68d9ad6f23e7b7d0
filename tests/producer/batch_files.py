"""Batch files of the tests: rows in, lines out, and what a batch leaves in Redis."""

import json
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from producer.batch import collect, results
from protocol import reads
from protocol.call import Call, run
from protocol.states import Priority
from tests.producer.tiny import MODEL
from tests.support.builders import SHARD
from tests.support.waiting import eventually


def row(custom_id: str, prompt: str = "hello there", url: str = "/v1/chat/completions", **body: Any) -> str:
    content = {"messages": [{"role": "user", "content": prompt}]} if "chat" in url else {"prompt": prompt}
    body = {"model": MODEL, **content, **body}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body}, ensure_ascii=False)


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def by_id(path: Path) -> dict[str | None, Any]:
    lines = written(path)
    found = {line["custom_id"]: line for line in lines}
    assert len(found) == len(lines)
    return found


async def leftovers(redis: Redis) -> list[bytes]:
    """Jobs, bodies, results and logs that are still there."""
    found: list[bytes] = await run(redis, Call(("KEYS", "*"), list))
    kinds = (b":job:", b":body:", b":result:", b":tokens:")
    return [key for key in found if any(kind in key for kind in kinds)]


async def until_queued(redis: Redis, rows: int, priority: Priority = Priority.MEDIUM) -> None:
    async def queued() -> bool:
        return await run(redis, reads.lane_depth(SHARD, priority)) == rows

    await eventually(queued)


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the jobs themselves after a moment without a notice."""
    monkeypatch.setattr(collect, "SILENCE_S", 0.05)
    monkeypatch.setattr(results, "BLOCK_MS", 20)
