"""Rounds as values that JSON can carry, and back: what `--record` writes and `tokenfleet replay` reads. Pure.

A file is a list of lines, each of one shard. A head tells the policy and its rules and begins anew; a round tells what
has changed since the round before it, so that it stays small: jobs are described once and then go by a number, a
worker's parts are told when they differ. Of prefixes only what the jobs in sight could use is told.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter

from protocol.wire import JsonObject
from scheduler.policy.decision import Assignment, Decision, Park, ParkReason, Refusal
from scheduler.policy.order import Targets
from scheduler.policy.recording_rows import (
    REPORT_FIELDS,
    Count,
    Flag,
    Number,
    Prefix,
    holders_of,
    job_of,
    job_row,
    prefixes_of,
    worker_of,
    worker_parts,
)
from scheduler.policy.view import FleetView, JobView, Lately, WorkerView
from scheduler.policy.window import Window

VERSION = 3
_HEAD = TypeAdapter(tuple[str, str, list[str]])
_TARGETS, _WINDOW = TypeAdapter(Targets), TypeAdapter(Window)
_NAMES = TypeAdapter(list[str])
_ROUND = TypeAdapter(tuple[Number, Count, tuple[Flag, Flag]])
_DECISION: TypeAdapter[Any] = TypeAdapter(
    tuple[
        list[tuple[Count, Count, Count, Number, Number]],
        list[tuple[Count, Count, ParkReason]],
        list[tuple[Count, Number]],
    ]
)


class Unreadable(ValueError):
    """A line that is none of ours, or of a later version."""


@dataclass(frozen=True, slots=True)
class Head:
    """By what a shard's next rounds were decided."""

    shard: str
    policy: str
    targets: Targets
    window: Window


@dataclass(frozen=True, slots=True)
class Round:
    """A round as it was decided: `decision` has its assignments, parks and refusals."""

    head: Head
    now_ms: float
    view: FleetView
    decision: Decision


def plain(view: FleetView) -> FleetView:
    """The view as far as a recording keeps it: what decisions read, and no more."""
    prefixes = prefixes_of(view.lanes)
    lanes = tuple(tuple(job_of(job_row(job)) for job in lane) for lane in view.lanes)
    workers = tuple(
        worker_of(worker.id, worker_parts(worker, prefixes), REPORT_FIELDS, prefixes) for worker in view.workers
    )
    return FleetView(lanes, workers, view.turn, view.lately, holders_of(workers))


class Encoder:
    """Writes one shard's rounds, in order, after its head."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._numbers: dict[str, tuple[JobView, int]] = {}
        self._next = 0
        self._order: list[str] = []
        self._parts: dict[str, list[Any]] = {}

    def head(self) -> JsonObject:
        """The first line."""
        head, targets = self._head, asdict(self._head.targets)
        targets |= {name: sorted(targets[name]) for name in ("refuse", "in_time")}
        rules = {"policy": head.policy, "targets": targets, "window": asdict(head.window)}
        return {"s": head.shard, "recording": VERSION, "report": list(REPORT_FIELDS), **rules}

    def round(self, view: FleetView, now_ms: float, decision: Decision) -> JsonObject:
        """The next line."""
        described = self._describe(view)
        number = {ref: count for ref, (_, count) in self._numbers.items()}
        line: JsonObject = {
            "s": self._head.shard,
            "t": now_ms,
            "n": view.turn,
            "o": [int(kind) for kind in view.lately],
        }
        line["l"] = [[number[job.ref] for job in lane] for lane in view.lanes]
        if described:
            line["j"] = described
        order = [worker.id for worker in view.workers]
        if order != self._order:
            self._order, line["w"] = order, order
            self._parts = {name: parts for name, parts in self._parts.items() if name in set(order)}
        prefixes = prefixes_of(view.lanes)
        rows = ((at, self._changed(worker, prefixes)) for at, worker in enumerate(view.workers))
        changed = [[at, *parts] for at, parts in rows if any(part is not None for part in parts)]
        if changed:
            line["c"] = changed
        return line | _decided(decision, number, order)

    def _describe(self, view: FleetView) -> list[list[Any]]:
        before, self._numbers, rows = self._numbers, {}, []
        for job in (job for lane in view.lanes for job in lane):
            known = before.get(job.ref)
            if known is None or known[0] is not job:
                known = (job, self._next)
                self._next += 1
                rows.append([known[1], *job_row(job)])
            self._numbers[job.ref] = known
        return rows

    def _changed(self, worker: WorkerView, prefixes: Collection[Prefix]) -> list[Any]:
        """The parts that are not what they were; None for each that is."""
        now = worker_parts(worker, prefixes)
        before = self._parts.get(worker.id, [None] * len(now))
        self._parts[worker.id] = now
        return [part if part != old else None for part, old in zip(now, before, strict=True)]


class Decoder:
    """Reads the lines of a file, in order."""

    def __init__(self) -> None:
        self._shards: dict[str, _Shard] = {}

    def take(self, line: JsonObject) -> Round | None:
        """The round that the line tells of; None for a head.

        Raises:
            Unreadable: it does not follow on what was read before.
        """
        try:
            if "recording" in line:
                self._shards[line["s"]] = _begin(line)
                return None
            return self._shards[line["s"]].round(line)
        except Unreadable:
            raise
        except (KeyError, IndexError, TypeError, ValueError) as error:
            msg = f"the line does not follow on those before it ({type(error).__name__})"
            raise Unreadable(msg) from None


class _Shard:
    """What is known of one shard so far."""

    def __init__(self, head: Head, fields: Sequence[str]) -> None:
        self._head, self._fields = head, fields
        self._jobs: dict[int, JobView] = {}
        self._order: list[str] = []
        self._parts: dict[str, list[Any]] = {}

    def round(self, line: JsonObject) -> Round:
        self._jobs |= {row[0]: job_of(row[1:]) for row in line.get("j", ())}
        self._order = _NAMES.validate_python(line.get("w", self._order))
        for at, *parts in line.get("c", ()):
            before = self._parts.get(self._order[at], [None] * len(parts))
            merged = [old if part is None else part for part, old in zip(parts, before, strict=True)]
            self._parts[self._order[at]] = merged
        lanes = tuple(tuple(self._jobs[number] for number in lane) for lane in line["l"])
        shown = {number for lane in line["l"] for number in lane}
        decision = self._decision(line)
        self._jobs = {number: job for number, job in self._jobs.items() if number in shown}
        prefixes = prefixes_of(lanes)
        workers = tuple(worker_of(name, self._parts[name], self._fields, prefixes) for name in self._order)
        now_ms, turn, lately = _ROUND.validate_python((line["t"], line["n"], line["o"]))
        view = FleetView(lanes, workers, turn, Lately(*map(bool, lately)), holders_of(workers))
        return Round(self._head, now_ms, view, decision)

    def _decision(self, line: JsonObject) -> Decision:
        jobs, order = self._jobs, self._order
        given, parked, refused = _DECISION.validate_python([line.get(kind, ()) for kind in "apr"])
        return Decision(
            tuple(Assignment(jobs[n].ref, jobs[n].priority, order[at], *sizes) for n, at, *sizes in given),
            tuple(Park(jobs[n].ref, jobs[n].priority, ms, why) for n, ms, why in parked),
            tuple(Refusal(jobs[n].ref, jobs[n].priority, ms) for n, ms in refused),
        )


def _begin(line: JsonObject) -> _Shard:
    if line["recording"] != VERSION:
        msg = f"the recording has version {line['recording']!r}, this program reads {VERSION}"
        raise Unreadable(msg)
    shard, policy, fields = _HEAD.validate_python((line["s"], line["policy"], line["report"]))
    targets, window = _TARGETS.validate_python(line["targets"]), _WINDOW.validate_python(line["window"])
    return _Shard(Head(shard, policy, targets, window), fields)


def _decided(decision: Decision, number: Mapping[str, int], order: Sequence[str]) -> JsonObject:
    at = {name: place for place, name in enumerate(order)}
    rows: dict[str, list[list[Any]]] = {
        "a": [
            [number[one.ref], at[one.worker], one.prompt_tokens, round(one.predicted_ms, 1), round(one.pending_ms, 1)]
            for one in decision.assignments
        ],
        "p": [[number[one.ref], one.delay_ms, str(one.reason)] for one in decision.park],
        "r": [[number[one.ref], round(one.wait_ms, 1)] for one in decision.refusals],
    }
    return {name: told for name, told in rows.items() if told}
