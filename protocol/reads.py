"""Reads: what is looked up in Redis without changing it."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from protocol import frames, keys
from protocol.call import Call
from protocol.errors import InvalidRequest
from protocol.handle import Handle, Shard
from protocol.messages import (
    MOST,
    AttemptRecord,
    DeadEntry,
    DeadJob,
    DoneNotice,
    Frame,
    InboxEntry,
    JobRecord,
    JobSpec,
    LoadReport,
    ModelRecord,
    Outcome,
    WaitingJob,
    Why,
    WorkerRecord,
)
from protocol.states import Priority, State
from protocol.wire import loads

Fields = Mapping[bytes, bytes]
Entries = Sequence[tuple[bytes, Fields]]


@dataclass(frozen=True, slots=True)
class LaneEntry:
    """A queued job's place: its member in the lane, its name in the shard, its fair virtual time."""

    member: str
    ref: str
    score: float


def moment(text: str | bytes) -> int:
    """A time in ms, or a count, as Redis holds it.

    Raises:
        ValueError: it is none, or too large for any of ours.
    """
    value = int(text)
    if abs(value) > MOST:
        raise ValueError("too large")
    return value


def store_time_ms() -> Call[int]:
    """Redis's own time."""
    return Call(("TIME",), lambda reply: int(reply[0]) * 1000 + int(reply[1]) // 1000)


def models() -> Call[dict[str, ModelRecord]]:
    """All models that were ever registered; a record that can't be read is left out."""
    return Call(("HGETALL", keys.MODELS), _models)


def _models(reply: Fields) -> dict[str, ModelRecord]:
    found = {}
    for name, record in reply.items():
        with suppress(ValueError):
            found[name.decode()] = ModelRecord.model_validate_json(record)
    return found


def job_record(handle: Handle) -> Call[JobRecord | None]:
    """A job's metadata; None when there is no such job."""
    return Call(("HGETALL", keys.job(handle)), _job_record)


@dataclass(frozen=True, slots=True)
class JobTimes:
    """Who ran a job last, and its times: ms of Redis's clock, 0 when not reached."""

    worker: str
    submitted_ms: int
    started_ms: int
    first_token_ms: int
    finished_ms: int


def job_times(handle: Handle) -> Call[JobTimes | None]:
    """What a batch counts of a job, a fifth of the work of `job_record`; None when there is no such job."""
    return Call(("HMGET", keys.job(handle), "worker", "submitted", "started", "first", "finished"), _job_times)


def _job_times(reply: Sequence[bytes | None]) -> JobTimes | None:
    worker, *times = reply
    if times[0] is None:
        return None
    submitted, started, first, finished = (moment(time or b"0") for time in times)
    return JobTimes((worker or b"").decode(), submitted, started, first, finished)


_TIMES = ("submitted", "ripe", "assigned", "started", "finished", "deadline")


def _job_record(reply: Fields) -> JobRecord | None:
    if not reply:
        return None
    text: dict[str, Any] = {name.decode(): value.decode() for name, value in reply.items()}
    text |= {f"{name}_ms": moment(text[name]) for name in _TIMES if name in text}
    text["first_token_ms"] = moment(text.get("first", "0"))
    text["spec"] = JobSpec.model_validate_json(text["spec"])
    why = text.pop("why", "")
    text["why"] = Why.model_validate_json(why) if why else None
    text["history"] = _history(text.get("history", ""))
    return JobRecord.model_validate(text)


def _history(text: str) -> list[AttemptRecord]:
    found = []
    for line in text.splitlines():
        with suppress(ValueError):
            found.append(AttemptRecord.model_validate_json(line))
    return found


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a job's token log stands: `frames` were emitted by `attempt`; once the job ended, one more is the seal.

    `once`: whoever reads its result forgets it.
    """

    state: State
    attempt: int
    frames: int
    once: bool = False


def standing(handle: Handle) -> Call[Standing | None]:
    """What a follower compares its own place with; None when there is no such job."""
    return Call(("HMGET", keys.job(handle), "state", "attempt", "frames", "once"), _standing)


def _standing(reply: Sequence[bytes | None]) -> Standing | None:
    state, attempt, frames_emitted, once = reply
    return Standing(State(state.decode()), int(attempt or 0), int(frames_emitted or 0), once == b"1") if state else None


def lane_place(handle: Handle, job: JobRecord) -> Call[int | None]:
    """How many jobs stand before this one in its lane; None when it is not queued."""
    return Call(("ZRANK", keys.lane(handle.shard, job.priority), job.member), lambda reply: reply)


def outcome(handle: Handle) -> Call[Outcome | None]:
    """How a job ended; None while it lives, or once it is forgotten."""
    return Call(("GET", keys.result(handle)), lambda reply: Outcome.model_validate_json(reply) if reply else None)


def log_after(handle: Handle, position: tuple[int, int], count: int = 1000) -> Call[list[Frame]]:
    """At most `count` frames of the token log after `position` (attempt, sequence number)."""
    after = f"({position[0]}-{position[1]}"
    return Call(("XRANGE", keys.tokens(handle), after, "+", "COUNT", count), _log)


def _log(reply: Entries) -> list[Frame]:
    found = []
    for entry_id, fields in reply:
        # What no worker of ours has sent is missing for the follower, who is told so.
        with suppress(ValueError, KeyError, TypeError, InvalidRequest):
            found.append(frames.decode(entry_id, fields[b"f"]))
    return found


def lane_head(shard: Shard, priority: Priority, count: int) -> Call[list[LaneEntry]]:
    """The first `count` jobs of a lane."""
    return Call(("ZRANGE", keys.lane(shard, priority), 0, count - 1, "WITHSCORES"), _lane)


def _lane(reply: Sequence[bytes]) -> list[LaneEntry]:
    members = [member.decode() for member in reply[::2]]
    return [
        LaneEntry(member, member.split(":", 1)[1], float(score))
        for member, score in zip(members, reply[1::2], strict=True)
    ]


def lane_depth(shard: Shard, priority: Priority) -> Call[int]:
    """How many jobs a lane holds."""
    return Call(("ZCARD", keys.lane(shard, priority)), int)


def followers(handles: Sequence[Handle]) -> Call[list[int]]:
    """How many subscribers each job's token channel has on this server."""
    return Call(("PUBSUB", "NUMSUB", *map(keys.tokens, handles)), lambda reply: [int(count) for count in reply[1::2]])


def due_count(shard: Shard) -> Call[int]:
    """How many jobs wait for their time."""
    return Call(("ZCARD", keys.due(shard)), int)


def dead_count(shard: Shard) -> Call[int]:
    """How many jobs were set aside."""
    return Call(("XLEN", keys.dead(shard)), int)


def dead_entries(shard: Shard, count: int, before: str = "+") -> Call[list[DeadEntry]]:
    """At most `count` jobs that were set aside, the last one first; `before` is the last entry seen."""

    def parse(reply: Entries) -> list[DeadEntry]:
        found = []
        for entry_id, fields in reply:
            # A place in the stream all the same: who reads on goes on after it.
            ref, attempt = fields.get(b"j", b"").decode(errors="replace"), fields.get(b"a", b"")
            found.append(DeadEntry(entry_id.decode(), Handle.of(shard, ref), _small(attempt)))
        return found

    after = before if before == "+" else f"({before}"
    return Call(("XREVRANGE", keys.dead(shard), after, "-", "COUNT", count), parse)


def dead_job(handle: Handle) -> Call[DeadJob | None]:
    """What stands beside the body of a job that was set aside; None for any other job, and where it can't be read."""
    fields = ("dead", "priority", "spec", "digest", "keep", "reply", "submitted", "deadline", "once")
    return Call(("HMGET", keys.job(handle), *fields), _dead_job)


def _dead_job(reply: Sequence[bytes | None]) -> DeadJob | None:
    if reply[0] is None:
        return None
    _, priority, spec, digest, keep, reply_to, submitted, deadline, once = ((field or b"").decode() for field in reply)
    with suppress(ValueError):
        lasts_ms = int(deadline) - int(submitted)
        described = JobSpec.model_validate_json(spec)
        return DeadJob(Priority(priority), described, digest, int(keep), lasts_ms, reply_to, once == "1")
    return None


def dead_mark(handle: Handle) -> Call[str]:
    """The entry of the `dead` stream that stands for a job; empty for a job that is not set aside."""
    return Call(("HGET", keys.job(handle), "dead"), _mark)


def _mark(reply: bytes | None) -> str:
    time_ms, _, number = (reply or b"").partition(b"-")
    # bytes.isdigit knows ASCII's ten alone.
    return (reply or b"").decode() if time_ms.isdigit() and number.isdigit() else ""


def stored_body(handle: Handle) -> Call[bytes | None]:
    """A job's request body; None once the job ended, unless it was set aside."""
    return Call(("GET", keys.body(handle)), lambda reply: reply)


def waiting_job(shard: Shard, ref: str) -> Call[WaitingJob | None]:
    """What the dispatcher weighs of a queued job; None when it is gone or can't be read."""
    fields = ("spec", "submitted", "deadline", "strikes", "started", "ripe")
    return Call(("HMGET", keys.job(Handle.of(shard, ref)), *fields), _waiting_job)


def _waiting_job(reply: Sequence[bytes | None]) -> WaitingJob | None:
    spec, submitted, deadline, strikes, started, ripe = reply
    if spec is None or submitted is None or deadline is None:
        return None
    try:
        whole = JobSpec.model_validate_json(spec)
        since_ms = max(moment(submitted), moment(ripe or b"0"))
        return WaitingJob(whole, since_ms, moment(deadline), moment(strikes or b"0"), bool(started))
    except ValueError:
        return None


def _small(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) < 16 else 0


def leases(shard: Shard) -> Call[dict[str, int]]:
    """Worker id → end of its lease in ms; 0 while it is being reclaimed."""
    return Call(("ZRANGE", keys.workers(shard), 0, -1, "WITHSCORES"), _leases)


def _leases(reply: Sequence[bytes]) -> dict[str, int]:
    pairs = zip(reply[::2], reply[1::2], strict=True)
    # A score may be infinite, when it was written by hand.
    return {worker.decode(errors="replace"): int(min(max(float(lease), -MOST), MOST)) for worker, lease in pairs}


def worker_record(shard: Shard, worker_id: str, lease_ms: int = 0) -> Call[WorkerRecord | None]:
    """A worker's state and last report; None when it is gone."""

    def parse(reply: Fields) -> WorkerRecord | None:
        text: dict[str, Any] = {name.decode(): value.decode() for name, value in reply.items()}
        if "label" not in text:
            return None
        text |= {"id": worker_id, "lease_ms": lease_ms, "report_ms": moment(text["at"])}
        text["report"] = LoadReport.model_validate_json(text["report"])
        text["models"] = loads(text.get("models", "[]"))
        return WorkerRecord.model_validate(text)

    return Call(("HGETALL", keys.worker(shard, worker_id)), parse)


def inbox_after(shard: Shard, worker_id: str, last: str, block_ms: int) -> Call[list[InboxEntry]]:
    """Entries of an inbox after the entry `last` ("0" for all); waits at most `block_ms` for one."""
    return Call(("XREAD", "COUNT", 256, "BLOCK", block_ms, "STREAMS", keys.inbox(shard, worker_id), last), _inbox)


def _inbox(reply: Sequence[tuple[bytes, Entries]] | None) -> list[InboxEntry]:
    return [_inbox_entry(entry_id, fields) for _, entries in reply or () for entry_id, fields in entries]


def _inbox_entry(entry_id: bytes, fields: Fields) -> InboxEntry:
    kind, ref, attempt = fields.get(b"k"), fields.get(b"j", b"").decode(errors="replace"), fields.get(b"a", b"")
    if kind in (b"assign", b"abort") and ":" in ref and (number := _small(attempt)):
        return InboxEntry(entry_id.decode(), "assign" if kind == b"assign" else "abort", ref, number)
    # What was written by hand is an unknown command: it is acknowledged and never blocks.
    return InboxEntry(entry_id.decode(), "command", command=fields.get(b"c", b"").decode(errors="replace"))


def done_after(
    shards: Sequence[Shard], tenant: str, reply_to: str, last: Sequence[str], block_ms: int
) -> Call[list[DoneNotice]]:
    """A tenant's notices for `reply_to` in each shard, after the entry `last` of each; waits at most `block_ms`."""
    by_key = {keys.done(shard, tenant, reply_to).encode(): shard for shard in shards}

    def parse(reply: Sequence[tuple[bytes, Entries]] | None) -> list[DoneNotice]:
        return [_notice(by_key[key], entry_id, fields) for key, entries in reply or () for entry_id, fields in entries]

    return Call(("XREAD", "COUNT", 500, "BLOCK", block_ms, "STREAMS", *by_key, *last), parse)


def _notice(shard: Shard, entry_id: bytes, fields: Fields) -> DoneNotice:
    """What was written by hand tells of a job that nobody waits for: it is passed over, and never read again."""
    ref, attempt = fields.get(b"j", b"").decode(errors="replace"), _small(fields.get(b"a", b""))
    try:
        state = State(fields.get(b"s", b"").decode())
    except ValueError:
        ref, state = "", State.FAILED
    return DoneNotice(entry_id.decode(), Handle.of(shard, ref), attempt, state)
