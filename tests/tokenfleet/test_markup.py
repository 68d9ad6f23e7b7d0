"""People's words in what rich draws: a label, a model or a file that looks like markup stands there as it is."""

import io
from dataclasses import replace
from datetime import UTC, datetime

import click
import pytest
from rich.console import Console, RenderableType

from producer.batch import BatchEnd, BatchSummary
from producer.batch.tally import FinishedRow
from producer.dead import DeadInfo, SetAside
from producer.jobs import JobInfo
from producer.overview import BatchView, FirstTokens, Overview, ShardView, WorkerView
from producer.status import FleetStatus, ShardStatus
from producer.workers import PlacedWorker, Roster
from protocol.batches import BatchName, BatchRecord, BatchSpec, BatchStatus
from protocol.handle import Handle
from protocol.messages import AttemptRecord, JobRecord, JobSpec, WorkerRecord
from protocol.states import Priority, State
from scheduler.policy.explain import Ahead, Candidate, Explanation, Verdict
from scheduler.policy.replay import Comparison, Tally
from tests.support.builders import SHARD
from tokenfleet import batch_progress
from tokenfleet.cli import dead_view, explain_view, replay_view, simulate_view, status_view, workers_view
from tokenfleet.cli.batch import running
from tokenfleet.cli.batch import view as batch_view
from tokenfleet.demo import report as demo_report
from tokenfleet.simulate.plan import Plan
from tokenfleet.simulate.summary import Percentiles, Summary
from tokenfleet.simulate.traces import Trace
from tokenfleet.top.parts import WIDE
from tokenfleet.top.view import Moment, screen

WORDS = "[/x]:warning:[red]"
"""It ends what was not begun, is an emoji to rich, and colours what follows."""
WORKER = WorkerRecord(id=WORDS, label=WORDS, state="active", models=(WORDS,), slots=4, held=1)
SPEC = JobSpec(model=WORDS, endpoint="/v1/completions", stream=False)
FAILED = JobRecord(
    state=State.FAILED,
    priority=Priority.LOW,
    spec=SPEC,
    error=WORDS,
    history=(AttemptRecord(attempt=1, worker=WORDS, why=WORDS),),
)
ASIDE = SetAside(Handle.of(SHARD, "t:j"), 1, FAILED)
QUEUED = Explanation(Verdict.NO_ROOM, Ahead(), 0.0, 0.0, (Candidate("w", WORDS, 0, 4),))
NO_TIMES = Percentiles()
RUN = Summary(1, 1.0, 0, 0, 0, 0, NO_TIMES, NO_TIMES, 0, 0.0, 1.0, {WORDS: 0.5})


def top() -> RenderableType:
    worker = WorkerView(
        id="w",
        label=WORDS,
        state="active",
        models=(WORDS,),
        slots=4,
        held=1,
        load_score=0.5,
        memory=0.5,
        running=1,
        waiting=0,
        capacity=4,
        kv=None,
        device_utilisation=None,
        device_temperature_c=None,
        report_age_ms=0,
        tokens_per_s=None,
        # What Redis holds of a job's name was not looked at.
        jobs=(replace(ASIDE.handle, own_id=WORDS),),
    )
    shard = ShardView(SHARD, (WORDS,), True, WORDS, None, (), 0, 0, (worker,))
    batch = BatchView("t", WORDS, BatchStatus.IN_PROGRESS, WORDS, 1, 0, 0, None, 0)
    seen = Overview(1, (shard,), FirstTokens(0, None, None), (batch,))
    return screen(Moment(WORDS, datetime.now(UTC), seen), 2 * WIDE, 40)


def batch() -> BatchRecord:
    spec = BatchSpec(input_file_id="file-1", endpoint="/v1/completions", model=WORDS)
    times = {BatchStatus.VALIDATING: 1}
    return BatchRecord(name=BatchName("t", "batch_1"), spec=spec, status=BatchStatus.VALIDATING, times_ms=times)


def summary() -> BatchSummary:
    made = BatchSummary(WORDS, rows_in=1)
    made.add(FinishedRow(1, failed=False, worker=WORDS))
    return made


def demo() -> demo_report.DemoReport:
    return demo_report.DemoReport(1, 1, 0, 1, 1.0, [demo_report.JobTimes(Priority.LOW, 1, 1, WORDS)], "", overtook=0)


DRAWN = {
    "top": (top(), 5),
    "workers": (workers_view.as_tables(Roster(1, (PlacedWorker(SHARD, WORKER),))), 3),
    "status": (status_view.as_tables(FleetStatus(1, (ShardStatus(SHARD, (WORDS,), (), 0, 0, (WORKER,)),))), 2),
    "dead": (dead_view.as_table([ASIDE]), 2),
    "a dead job": (dead_view.info_as_text(DeadInfo(ASIDE, None, None)), 3),
    "explain": (explain_view.as_text(explain_view.Answer(JobInfo(WORDS, FAILED, None), QUEUED)), 2),
    "replay": (replay_view.as_table(Comparison(Tally(WORDS), [Tally(WORDS)], rounds=1)), 2),
    "simulate": (simulate_view.as_tables(Plan(Trace(WORDS, ())), {"p": RUN}), 2),
    "batches": (batch_view.as_table([batch()]), 1),
    "a batch": (batch_progress.as_table(summary()), 2),
    "demo": (demo_report.as_tables(demo()), 1),
}


@pytest.mark.parametrize("name", DRAWN)
def test_words_that_look_like_markup_are_words(name: str) -> None:
    drawn, times = DRAWN[name]
    out = io.StringIO()
    Console(file=out, width=2 * WIDE).print(drawn)
    assert out.getvalue().count(WORDS) >= times


def test_a_batch_whose_output_looks_like_markup_ends_with_its_advice(capsys: pytest.CaptureFixture[str]) -> None:
    failed = BatchSummary(WORDS, BatchEnd.COMPLETED, rows_in=1, rows_out=1, rows_failed=1)
    with click.Context(click.Command("run")):
        running.end(failed, f"{WORDS}.jsonl")
    assert f"-o '{WORDS}.jsonl'" in capsys.readouterr().err
