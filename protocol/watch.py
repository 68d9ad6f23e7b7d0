"""Reads that the dispatcher repeats each round: lean, and they parse only what has changed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocol import keys
from protocol.call import Call
from protocol.errors import InvalidRequest
from protocol.handle import Shard
from protocol.messages import MOST, LoadReport
from protocol.states import Priority, State
from protocol.wire import loads


@dataclass(frozen=True, slots=True)
class WorkerNow:
    """A worker's hash as it stands.

    Attributes:
        state: `active` or why it takes nothing.
        held: jobs that it holds, by Redis's count.
        solo: it runs a job with two strikes, which runs alone.
        report_ms: when it published its report, in Redis's time.
        report: None when it can't be read.
        models: the names that it serves; empty when it serves whatever its pool does.
        prefixed: grows with each change of what `prefixes` reads.
    """

    label: str
    state: str
    slots: int
    held: int
    solo: bool
    report_ms: int
    report: LoadReport | None
    models: frozenset[str] = frozenset()
    prefixed: int = 0


def hint(shard: Shard, block_ms: int) -> Call[str]:
    """Wait at most `block_ms` until something has changed since `wake`; the job that came in, empty for all else."""
    return Call(("XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", keys.events(shard), "0"), _hinted)


def _hinted(reply: Sequence[Any]) -> str:
    told = [fields for _, entries in reply or () for _, fields in entries]
    text = told[0].get(b"v", b"").decode(errors="replace") if told and told[0].get(b"k") == b"submitted" else ""
    # Older functions tell its lane.
    return text if ":" in text else ""


def lane_members(shard: Shard, priority: Priority, count: int) -> Call[list[bytes]]:
    """The first `count` entries of a lane, as they are: they may have been written by hand."""
    return Call(("ZRANGE", keys.lane(shard, priority), 0, count - 1), list)


@dataclass(frozen=True, slots=True)
class Tally:
    """What a shard has counted since its keys are there.

    Attributes:
        waiting: jobs by priority, those in `due` too.
        ended: jobs by how they ended.
        strikes: attempts whose engine or worker died.
        tries: attempts that their engine failed.
        dead: jobs that were set aside.
        lost: workers whose lease ended.
        taken: jobs taken back from workers that had fallen silent before they began.
    """

    waiting: Mapping[Priority, int]
    ended: Mapping[State, int]
    strikes: int
    tries: int
    dead: int
    lost: int
    taken: int


def tally(shard: Shard) -> Call[Tally]:
    """What the functions have counted."""
    ends = [state for state in State if state.terminal]

    def parse(reply: Sequence[bytes | None]) -> Tally:
        counts = [int(count) if count and count.isdigit() and len(count) < 16 else 0 for count in reply]
        waiting, rest = counts[: len(Priority)], counts[len(Priority) :]
        ended = dict(zip(ends, rest, strict=False))
        return Tally(dict(zip(Priority, waiting, strict=True)), ended, *rest[len(ends) :])

    fields = [*(f"q:{priority}" for priority in Priority), *(f"n:{state}" for state in ends)]
    return Call(("HMGET", keys.clock(shard), *fields, "n:strike", "n:try", "n:dead", "n:lost", "n:taken"), parse)


@dataclass(frozen=True, slots=True)
class Store:
    """How the server is that holds a shard.

    Attributes:
        used_bytes: memory that it uses.
        most_bytes: that it may use; 0 for no limit.
        append_only: whether it keeps an append-only file.
        written: whether the last writes to that, and its last rewrite, went well.
    """

    used_bytes: int
    most_bytes: int
    append_only: bool
    written: bool


def store() -> Call[Store]:
    """What the server tells of its memory and its disk."""
    return Call(("INFO", "memory", "persistence"), _store)


def _store(told: Mapping[str, object]) -> Store:
    def whole(name: str) -> int:
        found = told.get(name)
        return found if isinstance(found, int) else 0

    states = [told.get(f"aof_last_{what}_status") for what in ("write", "bgrewrite")]
    return Store(
        whole("used_memory"), whole("maxmemory"), whole("aof_enabled") == 1, all(state != "err" for state in states)
    )


def member_ref(member: bytes) -> str | None:
    """The name inside the shard of the job that a lane's entry stands for; None when it names none."""
    try:
        seq, _, ref = member.decode().partition(":")
    except UnicodeDecodeError:
        return None
    return ref if seq.isdecimal() and ":" in ref else None


def worker_now(shard: Shard, worker_id: str, before: WorkerNow | None = None) -> Call[WorkerNow | None]:
    """A worker's hash; None when it is gone or can't be read. No new report since `before`: its report is kept."""

    def parse(reply: Sequence[bytes | None]) -> WorkerNow | None:
        label, state, slots, held, solo, at, report, models, prefixed = reply
        if label is None or state is None or at is None:
            return None
        try:
            who, counts, report_ms = (label.decode(), state.decode()), (int(slots or 0), int(held or 0)), int(at)
            version = int(prefixed or 0)
        except ValueError:
            return None
        if not all(abs(number) <= MOST for number in (*counts, report_ms)):
            return None
        if before and before.report_ms == report_ms:
            known, names = before.report, before.models
        else:
            known, names = _report(report), _models(models)
        return WorkerNow(*who, *counts, solo == b"1", report_ms, known, names, version)

    fields = ("label", "state", "slots", "held", "solo", "at", "report", "models", "prefixed")
    return Call(("HMGET", keys.worker(shard, worker_id), *fields), parse)


def prefixes(shard: Shard, worker_id: str) -> Call[frozenset[str]]:
    """The prefix hashes that a worker's engine holds."""
    return Call(("SMEMBERS", keys.prefixes(shard, worker_id)), _hashes)


def _hashes(reply: Iterable[bytes]) -> frozenset[str]:
    return frozenset(member.decode(errors="replace") for member in reply)


def _models(text: bytes | None) -> frozenset[str]:
    try:
        names = loads(text or b"[]")
    except InvalidRequest:
        return frozenset()
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


def _report(text: bytes | None) -> LoadReport | None:
    try:
        return LoadReport.model_validate_json(text or b"")
    except ValueError:
        return None
