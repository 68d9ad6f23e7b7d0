"""Small builders: a test names only what it is about."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from protocol.call import Call
from protocol.functions import NO_QUOTAS, Beat, Finished, Quotas, Submission, Ticked, TickTimes, beat, tick
from protocol.handle import Handle, Shard
from protocol.messages import JobSpec, LoadReport, Outcome
from protocol.states import Priority, State, WorkerState
from protocol.wire import JsonObject

SHARD = Shard("pool")
BOSS = "boss"
"""The token of the dispatcher that leads."""
LEASE_MS = 10_000
LIMITS = {Priority.HIGH: 10_000, Priority.MEDIUM: 1_000_000, Priority.LOW: 1_000_000}
BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
SPEC = JobSpec(model="m", endpoint="/v1/chat/completions", stream=True, prompt_tokens=10, output_tokens=90)


def a_handle(own_id: str = "a", tenant: str = "t", shard: Shard = SHARD) -> Handle:
    return Handle(shard, tenant, own_id)


def a_submission(own_id: str = "a", *, tenant: str = "t", shard: Shard = SHARD, **changes: Any) -> Submission:
    """A `high` streaming job of 100 tokens; its nonce is made from its id, so name another for another submit."""
    plain = Submission(
        handle=a_handle(own_id, tenant, shard),
        priority=Priority.HIGH,
        spec=SPEC,
        body=BODY,
        digest="digest",
        nonce=f"nonce-{own_id}",
        deadline_ms=3_600_000,
        keep_ms=60_000,
    )
    return replace(plain, **changes)


def join_worker(
    worker: str = "w1",
    slots: int = 4,
    *,
    state: WorkerState = "active",
    lease_ms: int = LEASE_MS,
    shard: Shard = SHARD,
    join: bool = True,
    **report: Any,
) -> Call[int | None]:
    """A beat that joins, with a lease, slots, a prefix and a load report."""
    who, added = (worker, f"label-{worker}", state, slots), ("prefix",) if join else ()
    message = Beat(*who, lease_ms, LoadReport(**report), join=join, added=added)
    return beat(shard, message)


def tick_as(
    token: str = BOSS,
    *,
    shard: Shard = SHARD,
    times: TickTimes | None = None,
    limits: Mapping[Priority, int] = LIMITS,
    quotas: Quotas = NO_QUOTAS,
    recall: bool = False,
) -> Call[Ticked]:
    """One tick of the dispatcher that holds `token`."""
    return tick(shard, token, times or TickTimes(lead_ms=LEASE_MS, lease_ms=LEASE_MS), limits, quotas, recall=recall)


def completed(
    handle: Handle,
    attempt: int,
    worker: str = "w1",
    frames: int = 0,
    state: State = State.COMPLETED,
    usage: JsonObject | None = None,
) -> Finished:
    """The end of an attempt, with a small response, and what its engine counted where it tells."""
    said: JsonObject = {"text": f"by attempt {attempt}"}
    outcome = Outcome(state=state, status_code=200, body=said | ({"usage": usage} if usage else {}))
    return Finished(handle, attempt, worker, frames, outcome)
