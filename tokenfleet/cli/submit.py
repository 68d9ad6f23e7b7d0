"""`tokenfleet submit`: one job."""

from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from protocol.errors import InvalidJson, InvalidRequest
from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.durations import duration
from tokenfleet.cli.events import answer_of, exit_of_outcome, outcome_as_json, print_events, print_failure
from tokenfleet.cli.exits import Exit
from tokenfleet.cli.options import json_option, shared_options, wants_json
from tokenfleet.cli.output import print_json
from tokenfleet.cli.streams import InputFile, read_stdin
from tokenfleet.terminal import write

if TYPE_CHECKING:
    from producer.fleet import Fleet
    from producer.jobs import Job
    from protocol.wire import JsonObject


class Options(TypedDict):
    """The options of `submit`, as click hands them over."""

    body: bytes | None
    model: str | None
    system: str | None
    priority: str
    deadline: float | None
    tenant: str
    best_effort: bool
    delay: float
    time_limit: float | None
    cancel_unfollowed: float | None
    keep: float | None
    delete_on_read: bool | None
    id: str
    durable: bool
    max_tokens: int | None
    temperature: float | None
    follow: bool
    wait: bool


@click.command("submit")
@click.argument("prompt", required=False)
@click.option("--body", type=InputFile(), help="A whole OpenAI request body as JSON; - reads stdin.")
@click.option("--model", help="The model; may be left out when the fleet serves only one.")
@click.option("--system", help="The system message of a chat.")
@click.option(
    "--priority",
    type=click.Choice(["high", "medium", "low"]),
    default="high",
    show_default=True,
    help="high: someone waits; medium: a batch; low: whenever there is room.",
)
@click.option("--deadline", type=duration, help="Expires when it has not ended by then, such as 6h.")
@click.option("--tenant", default="", help="Whose job it is.")
@click.option(
    "--best-effort", is_flag=True, help="Wait as long as it must, where the fleet refuses jobs that come too late."
)
@click.option("--delay", type=duration, default="0", help="Begins so much later.")
@click.option("--time-limit", type=duration, help="How long an attempt may run.")
@click.option(
    "--cancel-unfollowed", type=duration, help="Cancelled once nobody has followed it, or waited for it, for so long."
)
@click.option("--keep", type=duration, help="How long the result is kept.")
@click.option("--delete-on-read/--no-delete-on-read", default=None, help="Forget the job once its result was read.")
@click.option("--id", default="", help="Your own id: submitted again, it is the same job.")
@click.option("--durable", is_flag=True, help="Return once a replica or the disk has it, whichever Redis has.")
@click.option("--max-tokens", type=click.IntRange(1))
@click.option("--temperature", type=click.FloatRange(0))
@click.option("--follow", "--stream", "follow", is_flag=True, help="Print the tokens as they come.")
@click.option("--wait", is_flag=True, help="Wait for the end and print the answer.")
@shared_options
@json_option
@click.pass_context
def command(context: click.Context, prompt: str | None, **options: Unpack[Options]) -> None:
    """Submit a job: a chat with PROMPT as its message (- reads it from stdin), or a whole body.

    Prints the job's handle, by which `follow`, `job` and `cancel` find it from anywhere.

    \b
    Examples:
      tokenfleet submit "What is the capital of France?" --follow
      tokenfleet submit --body request.json --priority low --deadline 6h
      cat long.txt | tokenfleet submit - --system "Summarise." --wait

    With --json: one object with `handle`; with --wait also `state`, `status_code`, `body` and `error`; with --follow
    one object for each event.

    \b
    Exit codes: 0 accepted (with --wait or --follow: completed), 2 invalid, 3 the job failed,
    4 Redis is away or the queue is full.
    """
    request = _request(prompt, options)
    context.exit(with_fleet(lambda fleet: _submit(fleet, request, options)))


def _request(prompt: str | None, options: Options) -> "JsonObject":
    """The OpenAI body that the arguments describe, without the model."""
    if (prompt is None) == (options["body"] is None):
        raise InvalidRequest("give either a PROMPT or --body")
    body = _chat(prompt, options["system"]) if prompt is not None else _whole_body(options["body"] or b"")
    given = {"max_tokens": options["max_tokens"], "temperature": options["temperature"]}
    return body | {name: value for name, value in given.items() if value is not None}


def _chat(prompt: str, system: str | None) -> "JsonObject":
    text = _text(read_stdin()) if prompt == "-" else prompt
    first = [{"role": "system", "content": system}] if system else []
    return {"messages": [*first, {"role": "user", "content": text}]}


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"stdin is not UTF-8 at byte {error.start}") from None


def _whole_body(data: bytes) -> "JsonObject":
    from protocol import wire

    body = wire.loads_of_user(data)
    if not isinstance(body, dict):
        raise InvalidJson("the body is not a JSON object")
    return body


async def _submit(fleet: "Fleet", body: "JsonObject", options: Options) -> Exit:
    job = await fleet.submit(
        model=options["model"] or ("" if "model" in body else await _only_model(fleet)),
        body=body,
        priority=options["priority"],
        deadline=options["deadline"],
        tenant=options["tenant"],
        stream=options["follow"],
        best_effort=options["best_effort"],
        delay=options["delay"],
        time_limit=options["time_limit"],
        cancel_unfollowed=options["cancel_unfollowed"],
        keep=options["keep"],
        delete_on_read=options["delete_on_read"],
        id=options["id"],
        durable=options["durable"],
    )
    if options["follow"]:
        return await _follow(job)
    if options["wait"]:
        return await _wait(job)
    if wants_json():
        print_json({"handle": str(job), "created": job.created})
    else:
        click.echo(str(job))
    return Exit.CLEAN


async def _only_model(fleet: "Fleet") -> str:
    models = list(await fleet.models())
    if len(models) == 1:
        return models[0]
    known = f"The fleet serves: {', '.join(sorted(models))}." if models else "No worker ever registered one."
    raise InvalidRequest("name a model with --model", known)


async def _follow(job: "Job") -> Exit:
    if wants_json():
        print_json({"event": "submitted", "handle": str(job), "created": job.created})
    else:
        click.secho(f"job {job}", dim=True, err=True)
    return await print_events(job.follow(), as_json=wants_json())


async def _wait(job: "Job") -> Exit:
    outcome = await job.result()
    ended = exit_of_outcome(outcome)
    if wants_json():
        print_json({"handle": str(job), "created": job.created, **outcome_as_json(outcome)})
    elif ended is Exit.CLEAN:
        from protocol import wire

        write((answer_of(outcome) or wire.dumps(outcome.body).decode()) + "\n")
    else:
        print_failure(outcome)
    return ended
