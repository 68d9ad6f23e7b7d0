"""The options of commands that can run workers with vLLM."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Command = Callable[..., Any]


def vllm_options(command: Command) -> Command:
    """Add `--vllm-python`, and the flags after `--`."""
    command = click.argument("vllm_flags", nargs=-1, type=click.UNPROCESSED, metavar="[-- VLLM FLAGS]")(command)
    return click.option(
        "--vllm-python",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="vllm: the Python that has it, where it is not this one.",
    )(command)
