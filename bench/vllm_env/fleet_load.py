"""The same chats through a fleet."""

from collections.abc import AsyncIterator, Sequence
from typing import Self

from bench.vllm_env.pinning import cpu_seconds
from producer.fleet import Fleet
from protocol.wire import JsonObject

READY_S = 60.0


class FleetLoad:
    """Clients of a fleet, and what the whole fleet takes of the CPU."""

    def __init__(self, redis_url: str, model: str, processes: Sequence[int]) -> None:
        """`processes` are those of the fleet but for Redis's, which tells by itself."""
        self._fleet = Fleet(redis_url)
        self._model = model
        self._processes = processes

    async def __aenter__(self) -> Self:
        """Wait until a worker serves the model."""
        await self._fleet.ready(self._model, timeout=READY_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self._fleet.close()

    async def chat(self, body: JsonObject) -> AsyncIterator[str]:
        """See `Load.chat`."""
        job = await self._fleet.submit(model=self._model, body=body, stream=True)
        async for text in self._fleet.text(job):
            yield text

    async def cpu_seconds(self) -> float:
        """CPU time of the fleet so far: its processes, these clients, and Redis."""
        info = await self._fleet.redis.info("cpu")
        return cpu_seconds(self._processes) + float(info["used_cpu_user"]) + float(info["used_cpu_sys"])
