"""`tokenfleet explain`: why a job waits, or why it ran where it did."""

from typing import TYPE_CHECKING

import click

from protocol.handle import Handle
from tokenfleet.cli.connection import with_fleet
from tokenfleet.cli.options import job_handle, json_option, shared_options, wants_json
from tokenfleet.cli.output import print_json

if TYPE_CHECKING:
    from producer.fleet import Fleet
    from producer.jobs import JobInfo
    from scheduler.look import Look
    from scheduler.policy.explain import Explanation
    from scheduler.policy.view import JobView
    from tokenfleet.cli.explain_view import Answer


@click.command("explain")
@click.argument("handle", type=job_handle)
@shared_options
@json_option
def command(handle: Handle) -> None:
    """Say why a job waits, when it should start, and what each worker speaks against; or why it ran where it did.

    For a queued job the scheduler's own filters and policy are asked, on what it would see now. Nothing is changed.

    \b
    Examples:
      tokenfleet explain smollm2-135m.0.default.3f2a
      tokenfleet explain smollm2-135m.0.default.3f2a --json

    \b
    What is shown of a queued job:
      ahead    the jobs before it in its lane and in all more urgent lanes, and their tokens, prompts and outputs
      now      what the next round decides about it
      start    predicted, and how far first tokens have been from their predictions so far
      workers  the score that the policy gives each (lower is better), its predicted first token, how long its next step
               would take with this prompt and how long it may, its jobs, and what rules it out now

    \b
    Of one that ran:
      waits    in its lane, in the worker's inbox, for its first token
      why      the policy, what it predicted for this worker and the next best, and what came of it

    With --json, one object: `handle`, `state`, `priority`, and either `queued` (with `verdict`, `ahead_jobs`,
    `ahead_tokens`, `start_in_ms`, `first_token_in_ms`, `observed` and `workers`) or `ran` (with `worker`, `queue_ms`,
    `inbox_ms`, `first_token_ms`, `total_ms`, `policy`, `predicted_ms`, `scores`); null for what is not known.

    \b
    Exit codes: 0 explained, whatever its state; 2 no such job; 4 Redis is away.
    """
    answer = with_fleet(lambda fleet: _ask(fleet, handle))
    from tokenfleet.cli.explain_view import as_json, as_text

    if wants_json():
        print_json(as_json(answer))
        return
    from tokenfleet.plain import print_drawn

    print_drawn(as_text(answer))


async def _ask(fleet: "Fleet", handle: Handle) -> "Answer":
    from protocol import reads
    from protocol.call import run
    from protocol.states import State
    from scheduler.look import look
    from tokenfleet.cli.explain_view import Answer

    info = await fleet.job(handle)
    if info.record.state is State.QUEUED and info.place is not None:
        seen = await look(fleet.redis, handle.shard)
        return Answer(info, _explain(fleet, handle, info, seen), seen.outlook)
    worker = info.record.worker
    record = await run(fleet.redis, reads.worker_record(handle.shard, worker)) if worker else None
    return Answer(info, label=record.label if record else worker)


def _explain(fleet: "Fleet", handle: Handle, info: "JobInfo", seen: "Look") -> "Explanation":
    import random

    from scheduler.policy.explain import Question, ahead_of, explain
    from scheduler.policy.registry import POLICIES
    from scheduler.rules import rules_of

    rules, policy = rules_of(fleet.settings), seen.outlook.policy if seen.outlook else ""
    job = _job(handle, info, seen)
    ahead = ahead_of(job, info.place or 0, seen.view, seen.depths)
    return explain(
        Question(seen.view, job, ahead, seen.outlook.starts_per_s if seen.outlook else 0.0),
        seen.snapshot.now_ms,
        random.Random(),  # noqa: S311 - breaks ties between workers, guards nothing
        POLICIES.get(policy, rules.policy),
        rules.targets,
        rules.window,
    )


def _job(handle: Handle, info: "JobInfo", seen: "Look") -> "JobView":
    """As the lanes' heads show it; or, when it stands behind them, from its own record."""
    from scheduler.policy.view import JobView

    known = next((job for lane in seen.view.lanes for job in lane if job.ref == handle.ref), None)
    record = info.record
    return known or JobView(
        handle.ref,
        record.member,
        record.priority,
        record.spec,
        record.since_ms,
        record.deadline_ms,
        record.strikes,
        begun=bool(record.started_ms),
    )
