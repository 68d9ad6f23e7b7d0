"""`tokenfleet gateway`: OpenAI's API over HTTP, as a process."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenfleet.cli.options import json_option, load_settings, shared_options, store_option, wants_json
from tokenfleet.cli.output import print_json

if TYPE_CHECKING:
    import socket

    from producer.fleet import Fleet
    from producer.gateway.auth import KeyRing
    from producer.gateway.state import GatewayOptions
    from protocol.settings import Settings

GIB = 1024**3
LOOPBACK = "127.0.0.1"
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_COUNT = click.IntRange(0)
_SECONDS = click.FloatRange(0)
_ORIGIN = re.compile(r"https?://[^/?#\s@]+")


@click.command("gateway")
@click.option("--host", default=LOOPBACK, show_default=True, help="Where it listens.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 takes a free one.")
@click.option(
    "--open",
    "everybody",
    is_flag=True,
    help="Until the first key is created, let everybody in, as the tenant `default`.",
)
@click.option(
    "--wait", "wait_s", type=_SECONDS, default=600.0, show_default=True, help="Seconds for an answer in one piece."
)
@click.option(
    "--leave",
    "leave_s",
    type=_SECONDS,
    default=5.0,
    show_default=True,
    help="Seconds that a client which left has to come back before its job is cancelled.",
)
@click.option(
    "--grace",
    type=_SECONDS,
    default=30.0,
    show_default=True,
    help="Seconds that running answers may take when it is told to stop.",
)
@click.option(
    "--uploads", type=_COUNT, default=4, show_default=True, help="Files that one key may send at once; 0: no limit."
)
@click.option(
    "--stored",
    "stored_gib",
    type=_SECONDS,
    default=64.0,
    show_default=True,
    metavar="GIB",
    help="GiB that one tenant's files may take in the store before uploads are refused; 0: no limit.",
)
@click.option(
    "--connections",
    type=_COUNT,
    default=4096,
    show_default=True,
    help="What one address may have open at once; 0: no limit, for behind a proxy.",
)
@click.option("--metrics/--no-metrics", default=True, show_default=True, help="Tell all who ask at /metrics.")
@click.option(
    "--cors", "origins", multiple=True, metavar="ORIGIN", help="Let web pages from there ask; `*`: from everywhere."
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="With --open, answer under this name too: else only by address, as localhost and as --host.",
)
@click.option("--tls-cert", "certificate", type=_FILE, help="Speak HTTPS with this certificate (PEM).")
@click.option("--tls-key", "private_key", type=_FILE, help="The certificate's key (PEM).")
@store_option
@shared_options
@json_option
def command(
    *,
    host: str,
    port: int,
    everybody: bool,
    grace: float,
    hosts: Sequence[str],
    stored_gib: float,
    **given: Any,  # noqa: ANN401 - GatewayOptions' own fields
) -> None:
    """Serve OpenAI's API over HTTP in front of a fleet.

    Any OpenAI client reaches the fleet by its base URL, http://HOST:PORT/v1. Run as many gateways as you like: a stream
    that breaks off at one goes on at another. The API is described at /docs. Files and batches need --store, and a
    `tokenfleet batch-runner` with the same folder. Needs `pip install 'tokenfleet[gateway]'`.

    \b
    Examples:
      tokenfleet gateway --open
      tokenfleet gateway --store /srv/batches
      tokenfleet gateway --host 0.0.0.0 --port 80 --redis-url rediss://gateway@10.0.0.5:6380/0
      tokenfleet gateway --tls-cert cert.pem --tls-key key.pem --cors https://app.example

    At SIGTERM /ready turns 503 and nothing new is taken; what is being answered has --grace seconds, then streams are
    told how to go on elsewhere. With --json one object on stdout says where it listens.

    \b
    Exit codes: 0 stopped, 2 not installed, the port is in use or the setting is invalid, 4 Redis did not answer,
    130 a second signal cut it short.
    """
    settings = load_settings()
    _check_web(given["origins"], given["certificate"], given["private_key"])
    _check_installed()
    from producer.gateway.server import allow_many_connections, listen
    from producer.gateway.state import GatewayOptions
    from telemetry import tracing

    allow_many_connections()
    tracing.start("gateway")
    listener = listen(host, port)
    import uvloop

    names = (host.lower(), *map(str.lower, hosts))
    options = GatewayOptions(hosts=names, stored_bytes=int(stored_gib * GIB), **given)
    try:
        uvloop.run(_serve(settings, options, listener, everybody=everybody, grace_s=grace, as_json=wants_json()))
    except asyncio.CancelledError:
        # By a second signal; click tells it as Ctrl-C.
        raise KeyboardInterrupt from None


def _check_web(origins: Sequence[str], certificate: Path | None, private_key: Path | None) -> None:
    """Refuse what would only show when a browser asks.

    Raises:
        UsageError: an origin that no page can have, or a certificate without its key.
    """
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise click.UsageError("--cors: an origin reads https://HOST or https://HOST:PORT, without a path")
    if (certificate is None) != (private_key is None):
        raise click.UsageError("--tls-cert and --tls-key are given together")


def _check_installed() -> None:
    """Say what is missing before anything is tried.

    Raises:
        SetupError: the extra is not installed.
    """
    from protocol.errors import SetupError

    try:
        import fastapi
        import prometheus_client
        import python_multipart
        import uvicorn
    except ImportError:
        raise SetupError("the gateway is not installed", "pip install 'tokenfleet[gateway]'") from None
    del fastapi, prometheus_client, python_multipart, uvicorn


async def _serve(
    settings: "Settings",
    options: "GatewayOptions",
    listener: "socket.socket",
    *,
    everybody: bool,
    grace_s: float,
    as_json: bool,
) -> None:
    """Until a signal; a second one ends it at once."""
    from producer.fleet import Fleet
    from producer.gateway.server import serve
    from producer.gateway.state import Gateway
    from protocol import collector, store
    from tokenfleet.signals import stop_event

    task = asyncio.current_task()

    def end_at_once() -> None:
        if task:
            task.cancel()

    with stop_event(end_at_once) as stop:
        async with Fleet(settings=settings) as fleet:
            await store.wait_until_up(fleet.redis, settings.redis_patience_s, lambda: None)
            gateway = Gateway(fleet, await _ring(fleet, everybody=everybody), options)
            scheme = "https" if options.certificate else "http"

            def announce() -> None:
                # By now the application is built.
                collector.settle()
                _announce(scheme, listener, as_json=as_json)

            await serve(gateway, listener, stop, grace_s=grace_s, on_start=announce)


async def _ring(fleet: "Fleet", *, everybody: bool) -> "KeyRing":
    """Who is let in: those with a key, and everybody only as long as there is none and where that was asked for.

    Raises:
        SetupError: nobody could be.
    """
    from producer.gateway.auth import StoredKeys, UntilFirstKey
    from protocol.errors import SetupError

    stored = StoredKeys(fleet.redis, fleet.settings.redis_patience_s)
    if everybody:
        return UntilFirstKey(stored)
    if await stored.any_created():
        return stored
    hint = "Create one with `tokenfleet keys create`, or let everybody in with --open."
    raise SetupError("no API key was ever created, so nobody could come in", hint)


def _announce(scheme: str, listener: "socket.socket", *, as_json: bool) -> None:
    host, port = listener.getsockname()[:2]
    url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    if as_json:
        print_json({"ready": True, "url": url})
    else:
        click.echo(f"OpenAI's API at {url}/v1, described at {url}/docs; Ctrl-C stops it.", err=True)
