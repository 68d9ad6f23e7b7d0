"""`tokenfleet workers`: look at the workers, and tell one what to do."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.durations import duration, in_words
from tokenfleet.cli.options import json_option, shared_options, wants_json
from tokenfleet.cli.output import print_json
from tokenfleet.terminal import harmless

if TYPE_CHECKING:
    from producer.workers import Obeyed
    from protocol.functions.command import Command

Function = TypeVar("Function", bound=Callable[..., Any])


def told(function: Function) -> Function:
    """What all commands to one worker take."""
    worker = click.argument("worker", metavar="ID")
    timeout = click.option(
        "--timeout", type=duration, default="60s", show_default=True, help="How long to wait for its answer."
    )
    return worker(timeout(shared_options(json_option(function))))


@click.group("workers")
def command() -> None:
    """Look at the workers, and tell one what to do."""


@command.command("list")
@shared_options
@json_option
def list_workers() -> None:
    """Show every worker: what it does, what its engine holds, how hot its device is, where its time went.

    \b
    Example:
      tokenfleet workers list

    \b
    In the tables:
      state      active takes jobs; warm and asleep stand by; starting and loading come up; unhealthy starts its
                 engine again; draining and leaving go; lost is silent for longer than its lease
      jobs       held of slots
      run, wait  requests on the engine
      kv tokens  used and all of the KV cache
      prefix     share of the prompt tokens whose KV blocks were there already
      device     temperature and utilisation

    A - says that the engine or the device does not tell. With --json, one object: `now_ms` and `workers`, each with
    `shard`, `id`, `label`, `state`, `models`, `slots`, `held`, `report` and `prefix_hits`.

    \b
    Exit codes: 0 shown, 4 Redis is away.
    """
    from producer.workers import read_roster

    roster = with_fleet(lambda fleet: read_roster(fleet.redis))
    from tokenfleet.cli.workers_view import as_json, as_tables

    if wants_json():
        print_json(as_json(roster))
        return
    from tokenfleet.plain import print_drawn

    print_drawn(as_tables(roster))


@command.command("promote")
@told
def promote(worker: str, timeout: float) -> None:
    """Let a standby worker take jobs: at once when it is warm, after waking when it is asleep.

    ID is a worker's id, the beginning of one, or its label.

    \b
    Example:
      tokenfleet workers promote gpu-1

    With --json: `worker`, `label`, `shard`, `command`, `before`, `state` and `seconds`.

    \b
    Exit codes: 0 done; 2 no such worker, several, or it refuses and says why; 4 no answer in time, or Redis is away.
    """
    _tell("promote", worker, timeout)


@command.command("rest")
@told
def rest(worker: str, timeout: float) -> None:
    """Let an active worker stand by again: it finishes what it runs, takes nothing more, and stays warm.

    The scheduler does so by itself with workers that were started with --standby, once they are not needed (setting
    scale). ID is a worker's id, the beginning of one, or its label.

    \b
    Example:
      tokenfleet workers rest gpu-1

    With --json: `worker`, `label`, `shard`, `command`, `before`, `state` and `seconds`.

    \b
    Exit codes: 0 done; 2 no such worker, several, or it refuses and says why; 4 no answer in time, or Redis is away.
    """
    _tell("rest", worker, timeout)


@command.command("sleep")
@told
def sleep(worker: str, timeout: float) -> None:
    """Put a worker to sleep: its weights go to host memory, and the device's memory is free for others.

    An active one takes nothing more and finishes what it runs first. The KV cache is lost. An engine that can't sleep
    refuses: vLLM on a CPU, or without --enable-sleep-mode. ID is a worker's id, the beginning of one, or its label.

    \b
    Example:
      tokenfleet workers sleep gpu-2

    With --json: `worker`, `label`, `shard`, `command`, `before`, `state` and `seconds`.

    \b
    Exit codes: 0 done; 2 no such worker, several, or it refuses and says why; 4 no answer in time, or Redis is away.
    """
    _tell("sleep", worker, timeout)


@command.command("wake")
@told
def wake(worker: str, timeout: float) -> None:
    """Bring a sleeping worker's weights back to the device; it stands by, warm, until it is promoted.

    ID is a worker's id, the beginning of one, or its label.

    \b
    Example:
      tokenfleet workers wake gpu-2

    With --json: `worker`, `label`, `shard`, `command`, `before`, `state` and `seconds`.

    \b
    Exit codes: 0 done; 2 no such worker, several, or it refuses and says why; 4 no answer in time, or Redis is away.
    """
    _tell("wake", worker, timeout)


@command.command("drain")
@told
def drain(worker: str, timeout: float) -> None:
    """Let a worker finish and go: it takes nothing more, and what it can't finish in time goes to others.

    Answered when the worker takes nothing more. It is gone once `workers list` no longer shows it, after its setting
    drain_s at most. ID is a worker's id, the beginning of one, or its label.

    \b
    Example:
      tokenfleet workers drain gpu-1

    With --json: `worker`, `label`, `shard`, `command`, `before`, `state` and `seconds`.

    \b
    Exit codes: 0 done; 2 no such worker, several, or it refuses and says why; 4 no answer in time, or Redis is away.
    """
    _tell("drain", worker, timeout)


def _tell(word: "Command", worker: str, timeout_s: float) -> None:
    from producer.workers import command_worker

    obeyed = with_fleet(lambda fleet: command_worker(fleet.redis, worker, word, timeout_s=timeout_s))
    if wants_json():
        _print_json(word, obeyed)
        return
    record = obeyed.worker.record
    was = "" if record.state == obeyed.state else f", was {record.state}"
    click.echo(f"{harmless(record.label)} is {obeyed.state}{was}; answered after {in_words(obeyed.seconds)}")


def _print_json(word: "Command", obeyed: "Obeyed") -> None:
    record = obeyed.worker.record
    print_json(
        {
            "worker": record.id,
            "label": record.label,
            "shard": str(obeyed.worker.shard),
            "command": word,
            "before": record.state,
            "state": obeyed.state,
            "seconds": round(obeyed.seconds, 3),
        }
    )
