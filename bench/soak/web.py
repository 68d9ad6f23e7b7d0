"""The clients of a soak that speak HTTP, as a process of their own: `python -m bench.soak.web URL`."""

import asyncio
import sys
from itertools import count

import aiohttp
import uvloop

from bench.soak.plan import BATCH_ROWS, MODEL, STREAM_EACH_S
from protocol import wire

AT_ONCE, BATCHES_AT_ONCE = 300, 4
"""At the begin: pools of connections grow with their busiest moment, up to their bound. What grows then is a leak."""
LEAVE_EACH = 20
"""Each so manieth stream is left in its middle."""
ENDED = {"completed", "failed", "expired", "cancelled"}


async def web(url: str) -> None:
    """Streams at a steady rate and one batch after the other, for ever."""
    # A connection that is kept may be closed by the gateway at the moment when it is used again.
    connector = aiohttp.TCPConnector(limit=AT_ONCE, force_close=True)
    async with aiohttp.ClientSession(url, connector=connector) as session:
        await _ready(session)
        for _ in range(3):
            await asyncio.gather(*(_stream(session, number) for number in range(AT_ONCE)))
        await asyncio.gather(*(_batch(session) for _ in range(BATCHES_AT_ONCE)))
        async with asyncio.TaskGroup() as group:
            group.create_task(_streams(session))
            group.create_task(_batches(session))


async def _ready(session: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                async with session.get("/ready") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass  # it does not listen yet
            await asyncio.sleep(0.1)


async def _streams(session: aiohttp.ClientSession) -> None:
    async with asyncio.TaskGroup() as group:
        for number in count():
            group.create_task(_stream(session, number))
            await asyncio.sleep(STREAM_EACH_S)


async def _stream(session: aiohttp.ClientSession, number: int) -> None:
    message = {"role": "user", "content": f"turn {number}"}
    body = {"model": MODEL, "messages": [message], "stream": True, "max_tokens": 8 + 7 * number % 57}
    last = b""
    async with session.post("/v1/chat/completions", json=body) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if number % LEAVE_EACH == 0 and line.startswith(b"data:"):
                return
            last = line.strip() or last
    if last != b"data: [DONE]":
        raise SystemExit(f"a stream ended with {last[:80]!r}")


async def _batches(session: aiohttp.ClientSession) -> None:
    while True:
        await _batch(session)


async def _batch(session: aiohttp.ClientSession) -> None:
    row = {"method": "POST", "url": "/v1/completions"}
    bodies = [{"model": MODEL, "max_tokens": 16, "prompt": f"row {number}"} for number in range(BATCH_ROWS)]
    rows = b"".join(wire.dumps(row | {"custom_id": str(n), "body": body}) + b"\n" for n, body in enumerate(bodies))
    form = aiohttp.FormData({"purpose": "batch"})
    form.add_field("file", rows, filename="in.jsonl")
    async with session.post("/v1/files", data=form) as answer:
        answer.raise_for_status()
        source = (await answer.json())["id"]
    wish = {"input_file_id": source, "endpoint": "/v1/completions", "completion_window": "24h"}
    async with session.post("/v1/batches", json=wish) as answer:
        answer.raise_for_status()
        batch = await answer.json()
    while batch["status"] not in ENDED:
        await asyncio.sleep(1)
        async with session.get(f"/v1/batches/{batch['id']}") as answer:
            answer.raise_for_status()
            batch = await answer.json()
    if batch["request_counts"]["completed"] != BATCH_ROWS:
        raise SystemExit(f"a batch ended with {batch['request_counts']}")
    async with session.get(f"/v1/files/{batch['output_file_id']}/content") as answer:
        await answer.read()


if __name__ == "__main__":
    uvloop.run(web(sys.argv[1]))
