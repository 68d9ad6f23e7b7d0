"""Serves a gateway over HTTP until it is told to end."""

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial

import uvicorn

from producer.gateway.app import application
from producer.gateway.connection import for_server
from producer.gateway.handshakes import accepting
from producer.gateway.metered import Metered
from producer.gateway.shares import Shares
from producer.gateway.state import Gateway, GatewayOptions
from protocol.errors import SetupError

BACKLOG = 2048
SEND_BUFFER_BYTES = 256 * 1024
"""What the kernel keeps for each slow reader; it would take megabytes."""
LAST_S = 5
"""How long connections may take to close."""
MESSAGE_BYTES = 64 * 1024
"""What a client may send over a WebSocket: it has little to say."""


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None."""
        yield


def allow_many_connections() -> None:
    """As many open files as this process may have: a stream takes one, and systems begin with 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        SetupError: there is no such address here, or the port is in use.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise SetupError(f"can't listen at {host}, port {port}: {error.strerror or error}") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return listener


async def serve(
    gateway: Gateway,
    listener: socket.socket,
    stop: asyncio.Event,
    *,
    grace_s: float,
    on_start: Callable[[], None] = lambda: None,
) -> None:
    """Serve until `stop` is set, then take nothing new, and give what is being answered `grace_s` seconds.

    Raises:
        SetupError: the certificate or its key can't be used.
    """
    context = _tls(gateway.options, listener)
    # Its own lines would quote paths and exceptions; ours say what matters.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL + 1)
    http, ws = for_server(Shares(gateway.options.connections), gateway.metrics)
    config = uvicorn.Config(
        Metered(application(gateway), gateway.metrics),
        http=http,
        ws=ws,
        ws_max_size=MESSAGE_BYTES,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=LAST_S,
    )
    config.load()
    server = _Server(config)
    connection = partial(http, config, server.server_state, {})
    serving = asyncio.create_task(server.serve(sockets=[] if context else [listener]))
    async with accepting(listener, context, connection) if context else contextlib.nullcontext() as taking:
        on_start()
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({serving, stopping, taking or serving}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        await gateway.shut(grace_s)
    server.should_exit = True
    await serving


def _tls(options: GatewayOptions, listener: socket.socket) -> ssl.SSLContext | None:
    if options.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(options.certificate, options.private_key)
    except OSError as error:
        # ssl's own errors are of this kind.
        listener.close()
        raise SetupError(f"the certificate or its key can't be used: {error.strerror or error}") from None
    return context
