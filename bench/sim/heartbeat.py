"""The worker's heartbeat without its thread: the same beats, from a task that sends through the simulated network."""

import asyncio
from contextlib import suppress

from bench.sim.client import SimRedis
from protocol.call import run
from protocol.errors import FleetError
from protocol.functions import beat
from worker.heartbeat import LATE, Heartbeat, News


class SimHeartbeat(Heartbeat):
    """As its base. `redis_url` stands for the process's client, which `connect` finds."""

    _beating: asyncio.Task[None]

    def start(self) -> None:
        """Begin; nothing is sent before the first `publish`."""
        self._due = asyncio.Event()
        self._beating = self._loop.create_task(self._run_simulated(connect(self._redis_url)))

    def publish(self, news: News) -> None:
        """Tell Redis now."""
        super().publish(news)
        self._due.set()

    async def stop(self) -> None:
        """Beat no more."""
        self._beating.cancel()
        await asyncio.wait([self._beating])

    async def _run_simulated(self, redis: SimRedis) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pace.beat_s * LATE):
                    await self._due.wait()
            self._due.clear()
            if self._news and self._loop_moves():
                await self._beat_simulated(redis, self._news)

    async def _beat_simulated(self, redis: SimRedis, news: News) -> None:
        message, sent_s = self._message(news), self._clock.monotonic()
        try:
            held = await run(redis, beat(self._shard, message))  # type: ignore[arg-type]  # a stand-in for redis-py's
        except FleetError as error:
            self._missed(error)
        else:
            self._answered(held, sent_s, message)


_CLIENTS: dict[str, SimRedis] = {}


def connect(url: str) -> SimRedis:
    """The client of the process that `url` names."""
    return _CLIENTS[url]


def register(redis: SimRedis, name: str) -> str:
    """Make a URL for a process's client."""
    url = f"redis://{name}/0"
    _CLIENTS[url] = redis
    return url


def forget_all() -> None:
    """The run is over."""
    _CLIENTS.clear()
