"""What waits on a worker, retraced from its last report."""

from dataclasses import replace

import pytest

from scheduler.policy.view import REFERENCE, Arrival, WorkerView, work_ms
from tests.scheduler.policy.build import NOW_MS, weighed, worker

BASE, TOKEN, KV = REFERENCE.base_ms, REFERENCE.token_ms, REFERENCE.decode_kv_ms
EACH_MS = work_ms(500, 500)


def backlogs(view: WorkerView, *later_ms: float) -> list[tuple[int, int]]:
    """(pending, queued) tokens so much later, with no news."""
    return [(found.pending_tokens, found.queued_tokens) for found in (weighed(view, NOW_MS + ms) for ms in later_ms)]


def test_pending_prompts_are_computed_step_by_step() -> None:
    two_steps = worker(held=1, pending_prefill_tokens=4_000, prefilling=1, step_tokens=3_000)
    step_ms = BASE + 0.75 * work_ms(4_000, 4_000)
    assert backlogs(two_steps, 0, step_ms - 1, step_ms + 1, 10 * step_ms) == [
        (4_000, 1_000),
        (4_000, 1_000),
        (1_000, 0),
        (0, 0),
    ]
    assert weighed(two_steps, NOW_MS + 10).ends_ms == pytest.approx(step_ms - 10)


def test_a_prompt_waits_for_the_step_under_way_and_then_for_its_own() -> None:
    """However old the report: a worker that was silent for long does not look the emptier for it."""
    seen = worker(held=2, pending_prefill_tokens=500, prefilling=1, unseen_prompt=500, step_tokens=8_192)
    arrival = Arrival(NOW_MS + 3, 500, EACH_MS)
    view = replace(seen, unseen=replace(seen.unseen, arrivals=(arrival,)))
    first_ms = BASE + EACH_MS
    assert backlogs(view, 3, first_ms - 1, first_ms + 1, 2 * first_ms - 1, 2 * first_ms + 1) == [
        (1_000, 500),
        (1_000, 500),
        (500, 0),
        (500, 0),
        (0, 0),
    ]


def test_beside_streams_a_prompt_waits_for_the_decode_step_too() -> None:
    streaming = worker(held=3, unseen_prompt=500, kv_used_tokens=1_000)
    step_ms = BASE + TOKEN * 2 + KV * 1_000
    view = replace(streaming, unseen=replace(streaming.unseen, arrivals=(Arrival(NOW_MS + step_ms / 2, 500, EACH_MS),)))
    done_ms = step_ms + step_ms + EACH_MS
    assert backlogs(view, step_ms - 1, step_ms + 1, done_ms - 1, done_ms + 1) == [
        (500, 500),
        (500, 0),
        (500, 0),
        (0, 0),
    ]


def test_times_from_before_the_clock_went_back_count_as_now() -> None:
    seen = worker(held=2, pending_prefill_tokens=500, prefilling=1, unseen_prompt=500)
    ahead = replace(seen.unseen, arrivals=(Arrival(NOW_MS + 3_600_000, 500, EACH_MS),))
    view = replace(seen, reported_ms=NOW_MS + 3_600_000, unseen=ahead)
    assert backlogs(view, 0) == backlogs(seen, 0) == [(1_000, 0)]
    assert weighed(view).ends_ms == pytest.approx(weighed(seen).ends_ms)


def test_a_worker_that_fell_silent_is_not_taken_to_work_on() -> None:
    dead = worker(held=9, pending_prefill_tokens=400_000, prefilling=9)
    assert backlogs(dead, 60_000) == backlogs(dead, 2_000)
    assert backlogs(dead, 60_000)[0][0] > 300_000
