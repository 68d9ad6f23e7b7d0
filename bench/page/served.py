"""A gateway whose fleet is made up: all of it is the real one, but for what reads Redis."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from producer.fleet import Fleet
from producer.gateway.auth import Everybody
from producer.gateway.live.watch import Read, Watch
from producer.gateway.server import listen, serve
from producer.gateway.state import Gateway


@asynccontextmanager
async def serving(read: Read, every_s: float = 1.0) -> AsyncIterator[str]:
    """Its URL. It looks by `read`, each `every_s` seconds."""
    # Nobody asks this address: everybody is let in, and looks come from `read`.
    async with Fleet("redis://127.0.0.1:1") as fleet:
        gateway = Gateway(fleet, Everybody())
        gateway.watch = Watch(read, every_s)
        listener, stop = listen("127.0.0.1", 0), asyncio.Event()
        serving = asyncio.create_task(serve(gateway, listener, stop, grace_s=0))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stop.set()
            await serving
