"""TLS connections count for their address as soon as they are taken, and have a time for their handshake."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from producer.gateway.connection import BoundedHttp, site_of

HANDSHAKE_S = 10.0
"""How long a client may take until what it says is encrypted."""
AGAIN_S = 1.0
"""No file is free for a connection: others must close theirs first."""


@asynccontextmanager
async def accepting(
    listener: socket.socket, context: ssl.SSLContext, connection: Callable[[], BoundedHttp]
) -> AsyncIterator[asyncio.Task[None]]:
    """Take connections within the block, each with a protocol of its own; then close the listener.

    Yields the task that does, which ends by itself only with a defect: that is raised at the end of the block.

    A server of asyncio tells a protocol of its connection only once its handshake is done.
    """
    task = asyncio.create_task(_accept(listener, context, connection))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
        listener.close()
    if not task.cancelled():
        task.result()


async def _accept(listener: socket.socket, context: ssl.SSLContext, connection: Callable[[], BoundedHttp]) -> None:
    loop, handshakes = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    listener.settimeout(0)
    try:
        while True:
            # A flood of them may never have to wait below.
            await asyncio.sleep(0)
            try:
                plug, client = await loop.sock_accept(listener)
            except ConnectionError:  # It left before it was taken.
                continue
            except OSError:
                await asyncio.sleep(AGAIN_S)
                continue
            http = connection()
            if not http.counts_for(site_of(client)):
                # To tell why would take the handshake.
                plug.close()
                continue
            handshakes.add(task := asyncio.create_task(_shake_hands(http, plug, context)))
            task.add_done_callback(handshakes.discard)
    finally:
        for task in handshakes:
            task.cancel()


async def _shake_hands(http: BoundedHttp, plug: socket.socket, context: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    try:
        await loop.connect_accepted_socket(lambda: http, plug, ssl=context, ssl_handshake_timeout=HANDSHAKE_S)
    except OSError:
        # Of TLS too. The loop has closed it.
        pass
    finally:
        if http.scheme is None:
            # It was never told of the connection, and will not be told of its end.
            http.counts_no_more()
