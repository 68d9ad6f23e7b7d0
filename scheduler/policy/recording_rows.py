"""Jobs and workers as rows of a recording, and back. Ids and sizes, never prompts."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from protocol.messages import MOST, JobSpec, LoadReport
from protocol.states import Priority
from scheduler.policy.speeds import FASTEST, SLOWEST
from scheduler.policy.view import Arrival, Flow, JobView, Unseen, WorkerView

Prefix = tuple[str, ...]
Count = Annotated[int, Field(ge=0, le=MOST)]
Number = Annotated[float, Field(ge=-MOST, le=MOST, allow_inf_nan=False)]
Flag = Literal[0, 1]
_Arrival = tuple[Number, Count, Number]
_JOB: TypeAdapter[Any] = TypeAdapter(
    tuple[str, Literal[0, 1, 2], str, Count, Count, Flag, tuple[str, ...], Number, Number, Count, Flag]
)
_WORKER: TypeAdapter[Any] = TypeAdapter(
    tuple[
        tuple[str, Count, Annotated[float, Field(ge=FASTEST, le=SLOWEST)], list[str]],
        tuple[Flag, Count, Flag, Count, Count, Count, list[_Arrival], tuple[Number, Number]],
        tuple[Number, ...],
        list[str],
    ]
)
REPORT_FIELDS = (
    "load_score",
    "memory",
    "running",
    "waiting",
    "capacity",
    "pending_prefill_tokens",
    "prefilling",
    "step_tokens",
    "slow_share",
    "kv_used_tokens",
    "kv_total_tokens",
)
"""What decisions read of a report. New ones are added at the end: an older file has fewer."""
PRIORITIES = tuple(Priority)


def job_row(job: JobView) -> list[Any]:
    """What decisions read of a job."""
    spec = job.spec
    sizes = [spec.prompt_tokens, spec.output_tokens, int(spec.best_effort), list(spec.prefix)]
    return [
        job.ref,
        PRIORITIES.index(job.priority),
        spec.model,
        *sizes,
        job.submitted_ms,
        job.deadline_ms,
        job.strikes,
        int(job.begun),
    ]


def job_of(row: Sequence[Any]) -> JobView:
    """The job, from its row.

    Raises:
        ValueError: it is none.
    """
    ref, priority, model, prompt, output, best_effort, prefix, submitted, deadline, strikes, begun = (
        _JOB.validate_python(row)
    )
    spec = JobSpec.model_construct(
        model=model,
        endpoint="/v1/chat/completions",
        prompt_tokens=prompt,
        output_tokens=output,
        best_effort=bool(best_effort),
        prefix=prefix,
    )
    return JobView(ref, ref, PRIORITIES[priority], spec, submitted, deadline, strikes, bool(begun))


def worker_parts(worker: WorkerView, prefixes: Collection[Prefix]) -> list[Any]:
    """Who it is, how it stands, its report, and the prefixes that it holds of those in sight."""
    unseen = worker.unseen
    counted = [unseen.jobs, unseen.prompt_tokens, unseen.kv_tokens, [list(one) for one in unseen.arrivals]]
    flow = [worker.flow.work_ms, worker.flow.at_ms]
    return [
        [worker.label, worker.slots, worker.speed, sorted(worker.models)],
        [int(worker.active), worker.held, int(worker.solo), *counted, flow],
        [worker.reported_ms, *(getattr(worker.report, name) for name in REPORT_FIELDS)],
        sorted(deepest(worker, prefixes)),
    ]


def worker_of(name: str, parts: Sequence[Any], fields: Sequence[str], prefixes: Collection[Prefix]) -> WorkerView:
    """The worker, from its parts; `fields` are those of its report.

    Raises:
        ValueError: it is none.
    """
    (label, slots, speed, models), standing, (reported_ms, *values), blocks = _WORKER.validate_python(parts)
    active, held, solo, count, prompt, kv, arrivals, flow = standing
    return WorkerView(
        id=name,
        label=label,
        active=bool(active),
        slots=slots,
        held=held,
        solo=bool(solo),
        report=LoadReport(**dict(zip(fields, values, strict=True))),
        reported_ms=reported_ms,
        unseen=Unseen(count, prompt, kv, tuple(Arrival(*one) for one in arrivals)),
        flow=Flow(*flow),
        models=frozenset(models),
        prefixes=frozenset(expanded(frozenset(blocks), prefixes)),
        speed=speed,
    )


def prefixes_of(lanes: Iterable[Sequence[JobView]]) -> frozenset[Prefix]:
    """All that the jobs in sight have."""
    return frozenset(job.spec.prefix for lane in lanes for job in lane if job.spec.prefix)


def deepest(worker: WorkerView, prefixes: Collection[Prefix]) -> frozenset[str]:
    """Of each prefix the last block up to which the worker holds it; as hashes are chained, that tells the rest."""
    found = set()
    for prefix in prefixes:
        last = ""
        for block in prefix:
            if block not in worker.prefixes and block not in worker.sent:
                break
            last = block
        if last:
            found.add(last)
    return frozenset(found)


def expanded(deepest_blocks: frozenset[str], prefixes: Collection[Prefix]) -> Iterator[str]:
    """The blocks that are held, where these are the deepest."""
    for prefix in prefixes:
        depth = max((at for at, block in enumerate(prefix) if block in deepest_blocks), default=-1)
        yield from prefix[: depth + 1]


def holders_of(workers: Sequence[WorkerView]) -> dict[str, set[str]]:
    """Which workers hold each block."""
    holders: dict[str, set[str]] = {}
    for worker in workers:
        for block in worker.prefixes:
            holders.setdefault(block, set()).add(worker.id)
    return holders
