"""A job's events as a command shows them: text as it comes, or JSON lines."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Literal

import click

from protocol.states import State
from tokenfleet import terminal
from tokenfleet.cli.exits import Exit
from tokenfleet.cli.output import print_json

if TYPE_CHECKING:
    from producer.events import Event
    from protocol.messages import Outcome
    from protocol.wire import JsonObject


def exit_of_outcome(outcome: "Outcome") -> Exit:
    """Clean for a completed job that the engine did not refuse."""
    refused = outcome.status_code is not None and outcome.status_code >= 400
    return Exit.CLEAN if outcome.state is State.COMPLETED and not refused else Exit.FAILED


def outcome_as_json(outcome: "Outcome") -> "JsonObject":
    """How a job ended, for machines."""
    error = {"code": outcome.error.code, "message": outcome.error.message} if outcome.error else None
    return {"state": outcome.state, "status_code": outcome.status_code, "body": outcome.body, "error": error}


def answer_of(outcome: "Outcome") -> str:
    """The text of the first choice; empty when there is none."""
    for choice in (outcome.body or {}).get("choices") or ():
        return str((choice.get("message") or {}).get("content") or choice.get("text") or "")
    return ""


def print_failure(outcome: "Outcome") -> None:
    """Why a job has no answer, on stderr."""
    refusal = (outcome.body or {}).get("error") or {}
    code = outcome.error.code if outcome.error else str(refusal.get("code") or outcome.status_code or "")
    message = outcome.error.message if outcome.error else str(refusal.get("message") or "")
    shown = terminal.harmless(": ".join(part for part in (code, message) if part))
    click.echo(f"{click.style(f'job {outcome.state}', fg='red', bold=True)}  {shown}", err=True)


async def print_events(events: "AsyncIterator[Event]", *, as_json: bool) -> Exit:
    """Print until the job has ended."""
    from producer.events import End

    async for event in events:
        (_print_json_event if as_json else _print_event)(event)
        if isinstance(event, End):
            return exit_of_outcome(event.outcome)
    return Exit.FAILED


def _print_event(event: "Event") -> None:
    from producer.events import End, Restart, Tokens

    match event:
        case Tokens():
            terminal.write(event.text)
        case Restart():
            terminal.write("\n")
            click.secho(f"[{event.reason}]", dim=True, err=True)
        case End():
            terminal.write("\n")
            if exit_of_outcome(event.outcome) is not Exit.CLEAN:
                print_failure(event.outcome)
        case _:
            click.secho("[tokens are missing here: follow the job again once it has ended]", dim=True, err=True)


def _print_json_event(event: "Event") -> None:
    from producer.events import End, Restart, Tokens

    kind: Literal["tokens", "restart", "end", "truncated"]
    match event:
        case Tokens():
            kind, members = "tokens", {"id": event.id, "text": event.text, "chunks": event.chunks}
        case Restart():
            kind, members = "restart", {"reason": event.reason}
        case End():
            kind, members = "end", {"id": event.id, **outcome_as_json(event.outcome)}
        case _:
            kind, members = "truncated", {}
    print_json({"event": kind, **members})
