"""Why a job waits or where it ran, as text and as JSON: pure."""

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from producer.jobs import JobInfo
from protocol.messages import JobRecord
from protocol.outlook import Outlook
from protocol.states import State
from protocol.wire import JsonObject
from scheduler.policy.explain import Candidate, Explanation, Obstacle, Verdict
from tokenfleet.cli.durations import in_words
from tokenfleet.plain import plain
from tokenfleet.terminal import harmless

VERDICTS = {
    Verdict.STARTS: "starts now on {worker}",
    Verdict.REFUSED: "is refused: its first token can't come in time",
    Verdict.PARKED: "is set aside for some seconds: no active worker holds a job so large, or it stands in the way",
    Verdict.PUT_OFF: "is put off for some seconds: it can't meet its target, and those that can come first",
    Verdict.GATHERS: "gathers company that could share its prompt's beginning",
    Verdict.HELD_BACK: "is held back: waiting is better than any worker that has room",
    Verdict.BEHIND: "waits for its turn",
    Verdict.NO_ROOM: "waits for room: every worker that could run it is full",
    Verdict.NO_WORKER: "waits for a worker: none that is active could run it",
}
DELAYED = "it waits for its time, for its next try, or, where its target can't be met, for what the others leave"
OBSTACLES = {
    Obstacle.AWAY: "not active",
    Obstacle.MODEL: "does not serve the model",
    Obstacle.TOO_LARGE: "prompt and output do not fit its KV cache",
    Obstacle.SOLO: "runs a job that must run alone",
    Obstacle.ALONE: "not empty, and the job must run alone",
    Obstacle.SLOTS: "no free slot",
    Obstacle.QUEUE: "jobs queue inside its engine",
    Obstacle.FULL: "too many prompt tokens wait there, or its KV cache is nearly full",
    Obstacle.STEP: "its next step would be too long for those who stream there",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found out about a job.

    Attributes:
        queued: where it stands, for a queued job.
        outlook: what the leading dispatcher published.
        label: of the worker that has or had it.
    """

    info: JobInfo
    queued: Explanation | None = None
    outlook: Outlook | None = None
    label: str = ""


def as_text(answer: Answer) -> RenderableType:
    """For people."""
    record = answer.info.record
    title = Text.assemble((harmless(answer.info.handle), "bold"), f"  {record.state}, priority {record.priority}")
    if answer.queued:
        return Group(title, _lines(_queued(answer, answer.queued)), Text(), _workers(answer.queued.candidates))
    return Group(title, _lines(_ran(answer)))


def _lines(pairs: list[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        if value:
            table.add_row(name, plain(value))
    return table


def _queued(answer: Answer, found: Explanation) -> list[tuple[str, str]]:
    label = next((one.label for one in found.candidates if one.id == found.worker), found.worker)
    jobs = "1 job" if found.ahead.jobs == 1 else f"{found.ahead.jobs:,} jobs"
    ahead = f"{jobs}, {found.ahead.tokens:,} tokens" if found.ahead.jobs else "nothing"
    start = ""
    if found.start_in_ms is not None and found.first_token_in_ms is not None:
        start = f"in about {_ms(found.start_in_ms)}, its first token in {_ms(found.first_token_in_ms)}{_error(answer)}"
    return [
        ("waited", f"{_ms(found.waited_ms)}; its target is {_ms(found.target_ms)}"),
        ("ahead", ahead),
        ("now", f"it {VERDICTS[found.verdict].format(worker=label)}"),
        ("start", start or "can't be predicted"),
    ]


def _error(answer: Answer) -> str:
    observed = answer.outlook.observed if answer.outlook else ()
    if len(observed) != 3:
        return ""
    return f"; so far first tokens took {observed[0]:.1f} to {observed[2]:.1f} times what was predicted"


def _workers(candidates: tuple[Candidate, ...]) -> RenderableType:
    if not candidates:
        return Text("no worker is there", "yellow")
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for heading in ("worker", "score", "first token", "step", "jobs", "ruled out"):
        folds = heading in ("worker", "ruled out")
        table.add_column(heading, no_wrap=not folds, overflow="fold", justify="left" if folds else "right")
    for one in candidates:
        style = "" if one.obstacle is None else "dim"
        reason = OBSTACLES[one.obstacle] if one.obstacle else ""
        table.add_row(plain(one.label), *_figures(one), f"{one.held}/{one.slots}", reason, style=style)
    return table


def _figures(one: Candidate) -> list[str]:
    score = "-" if one.score is None else f"{one.score:,.4g}" if one.score < 10_000 else f"{one.score:,.0f}"
    first = "-" if one.first_token_ms is None else _ms(one.first_token_ms)
    step = "-" if one.step_ms is None or one.calm_ms is None else f"{one.step_ms:.0f}/{one.calm_ms:.0f} ms"
    return [score, first, step]


def _ran(answer: Answer) -> list[tuple[str, str]]:
    record = answer.info.record
    waits = [
        _wait("in its lane", record.since_ms, record.assigned_ms),
        _wait("in the worker's inbox", record.assigned_ms, record.started_ms),
        _wait("for its first token", record.started_ms, record.first_token_ms),
        _wait("in all", record.submitted_ms, record.finished_ms),
    ]
    before = [f"attempt {one.attempt} on {one.worker or '?'}: {one.why or one.fault}" for one in record.history]
    return [
        ("where", f"{answer.label}, attempt {record.attempt}" if answer.label else "no worker ever took it"),
        ("waits", ", ".join(wait for wait in waits if wait)),
        ("why", _why(record)),
        ("came", _came(record)),
        ("delayed", DELAYED if record.state is State.DELAYED else ""),
        ("error", record.error),
        ("before", "; ".join(before)),
    ]


def _wait(what: str, since_ms: int, until_ms: int) -> str:
    return f"{what} {_ms(until_ms - since_ms)}" if since_ms and until_ms >= since_ms else ""


def _why(record: JobRecord) -> str:
    if not record.why:
        return ""
    others = ", ".join(
        f"{label} {_ms(ms)}" for label, ms in sorted(record.why.scores.items(), key=lambda pair: pair[1])
    )
    promised = f"{record.why.policy}: a first token after {_ms(record.why.predicted_ms)} was predicted"
    return f"{promised}; it would have come soonest on: {others}" if others else promised


def _came(record: JobRecord) -> str:
    observed = observed_ms(record)
    if observed is None:
        return ""
    predicted = record.why.predicted_ms if record.why else 0
    ratio = f", {observed / predicted:.1f} times what was predicted" if predicted else ""
    return f"its first token after {_ms(observed)}{ratio}"


def observed_ms(record: JobRecord) -> int | None:
    """From its last assignment to its first token; None when it brought none since."""
    later = record.first_token_ms >= record.assigned_ms > 0
    return record.first_token_ms - record.assigned_ms if later else None


def _ms(value: float) -> str:
    return in_words(max(0.0, value) / 1000)


def as_json(answer: Answer) -> JsonObject:
    """For machines; times in ms."""
    record = answer.info.record
    who = {"handle": answer.info.handle, "state": str(record.state), "priority": str(record.priority)}
    if answer.queued:
        return who | {"queued": _queued_json(answer, answer.queued), "ran": None}
    return who | {"queued": None, "ran": _ran_json(answer)}


def _queued_json(answer: Answer, found: Explanation) -> JsonObject:
    return {
        "verdict": str(found.verdict),
        "worker": found.worker or None,
        "place": answer.info.place,
        "ahead_jobs": found.ahead.jobs,
        "ahead_tokens": found.ahead.tokens,
        "waited_ms": found.waited_ms,
        "target_ms": found.target_ms,
        "until_ms": found.until_ms,
        "start_in_ms": found.start_in_ms,
        "first_token_in_ms": found.first_token_in_ms,
        "observed": list(answer.outlook.observed) if answer.outlook and answer.outlook.observed else None,
        "workers": [
            {
                "id": one.id,
                "label": one.label,
                "held": one.held,
                "slots": one.slots,
                "score": one.score,
                "first_token_ms": one.first_token_ms,
                "step_ms": one.step_ms,
                "calm_ms": one.calm_ms,
                "ruled_out": str(one.obstacle) if one.obstacle else None,
            }
            for one in found.candidates
        ],
    }


def _ran_json(answer: Answer) -> JsonObject:
    record, info = answer.info.record, answer.info
    why = record.why
    started = record.started_ms >= record.assigned_ms > 0
    return {
        "worker": record.worker or None,
        "label": answer.label or None,
        "attempt": record.attempt,
        "queue_ms": info.queue_ms,
        "inbox_ms": record.started_ms - record.assigned_ms if started else None,
        "first_token_ms": info.ttft_ms,
        "total_ms": info.total_ms,
        "policy": why.policy if why else None,
        "predicted_ms": why.predicted_ms if why else None,
        "observed_ms": observed_ms(record),
        "scores": why.scores if why else None,
        "error": record.error or None,
        "history": [one.model_dump(mode="json") for one in record.history],
    }
