"""Files and batches of OpenAI's client, for keys that may more and less."""

from typing import Any, Final

from openai import AsyncOpenAI
from openai.types import Batch

from producer.batch.store import FileStore
from producer.gateway.auth import Grant
from protocol.batches import BatchName
from protocol.states import Priority
from tests.gateway.serving import MODEL, Served
from tests.producer.batch_files import row
from tests.producer.served import owned
from tests.support.waiting import eventually

CHAT: Final = "/v1/chat/completions"
GRANTS = {
    "ours": Grant("default", ""),
    "theirs": Grant("other", ""),
    "low": Grant("default", "", priorities=(Priority.LOW,)),
    "high": Grant("default", "", priorities=(Priority.HIGH,)),
    "narrow": Grant("default", "", models=(MODEL,)),
    "elsewhere": Grant("default", "", models=("another",)),
}


def rows(count: int, **body: Any) -> bytes:
    return "\n".join(row(f"r{n}", f"say {n}", model=MODEL, **body) for n in range(count)).encode()


async def put(sdk: AsyncOpenAI, content: bytes, name: str = "in.jsonl") -> str:
    return (await sdk.files.create(file=(name, content), purpose="batch")).id


async def create(sdk: AsyncOpenAI, file_id: str, **more: Any) -> Batch:
    return await sdk.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h", **more)


async def run_to_end(stored: Served, store: FileStore, sdk: AsyncOpenAI, batch: Batch) -> Batch:
    async def ended() -> Batch | None:
        seen = await sdk.batches.retrieve(batch.id)
        return seen if seen.status in ("completed", "failed", "expired", "cancelled") else None

    async with owned(stored.gateway.fleet, store, BatchName("default", batch.id)):
        found = await eventually(ended, 20)
    assert found
    return found
