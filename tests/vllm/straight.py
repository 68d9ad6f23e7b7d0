"""vLLM's own server without a fleet before it: what it answers and what it counts."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from protocol.wire import JsonObject, loads
from tests.support.waiting import eventually
from tests.vllm.roles import EngineProcesses


@dataclass(frozen=True)
class Straight:
    """A client of one engine."""

    session: aiohttp.ClientSession

    async def ask(self, path: str, body: JsonObject) -> JsonObject:
        """The answer to one request."""
        async with self.session.post(path, json=body) as answer:
            assert answer.status == 200, await answer.text()
            return loads(await answer.read())  # type: ignore[no-any-return]  # an object, as OpenAI's answers are

    async def metric(self, name: str) -> float:
        """The sum of a metric's samples."""
        async with self.session.get("/metrics") as answer:
            text = await answer.text()
        return sum(float(value) for value in re.findall(rf"^vllm:{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))

    async def busy(self) -> float:
        """Requests that run or wait."""
        return await self.metric("num_requests_running") + await self.metric("num_requests_waiting")

    async def works(self) -> None:
        """Return once it runs something."""

        async def runs() -> bool:
            return await self.metric("num_requests_running") > 0

        assert await eventually(runs, timeout_s=20)

    async def idle_s(self, since_s: float) -> float:
        """Seconds from `since_s` (the event loop's clock) until nothing runs or waits."""

        async def idle() -> bool:
            return not await self.busy()

        assert await eventually(idle, timeout_s=20)
        return asyncio.get_running_loop().time() - since_s


@asynccontextmanager
async def straight(engine: EngineProcesses) -> AsyncIterator[Straight]:
    """A client for the length of a block, with the key that the worker made."""
    headers = {"Authorization": f"Bearer {engine.api_key}"}
    connector = aiohttp.UnixConnector(engine.socket)
    async with aiohttp.ClientSession("http://vllm", headers=headers, connector=connector) as session:
        yield Straight(session)
