"""Every role is scraped during a journey, and tells what the jobs' own records say."""

import json
import signal
from collections.abc import Iterable
from os import kill
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench import metrics_page
from producer.jobs import Job
from producer.keys import create_key
from protocol.limits import Limits
from protocol.messages import JobRecord
from protocol.states import State
from tests.observe.conftest import MODEL, Watched
from tests.observe.scraping import Scrape
from tests.observe.truth import BY_HAND, BY_JOURNEY, BY_REPORT, BY_UNITS
from tests.support.waiting import eventually

STREAMS, TOKENS, ROWS = 8, 20, 12
LONG_TOKENS = 1_500
"""So many that a worker can be killed in the middle."""
SLACK_S = 1.0
"""Between what a process times itself and what Redis notes: a write's way, on a busy machine."""


async def records(jobs: Iterable[Job]) -> list[JobRecord]:
    return [(await job.info()).record for job in jobs]


async def streams(watched: Watched, count: int, tokens: int) -> list[Job]:
    wish: dict[str, Any] = {"stream": True, "max_tokens": tokens, "ignore_eos": True}
    return [await watched.fleet.submit(model=MODEL, prompt=f"no. {n}", **wish) for n in range(count)]


def batch_input(path: Path) -> Path:
    body = {"model": MODEL, "max_tokens": TOKENS, "ignore_eos": True}
    rows = [
        {"custom_id": f"r{n}", "method": "POST", "url": "/v1/completions", "body": {**body, "prompt": f"row {n}"}}
        for n in range(ROWS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def seconds(values: Iterable[int]) -> float:
    return sum(values) / 1000


def check_worker(told: Scrape, ran: list[JobRecord]) -> None:
    """The streams that one worker has completed."""
    high, count = {"priority": "high"}, len(ran)
    name = "tokenfleet_worker_{}".format
    assert told.sum(name("attempts_total"), end="completed", **high) == count
    timed = ("queue", "first_token", "engine_first_token", "job", "engine")
    for each in timed:
        assert told.sum(name(f"{each}_seconds_count"), **high) == count, each
        assert told.buckets(name(f"{each}_seconds"), **high) == count, each
    assert told.sum(name("between_tokens_seconds_count"), **high) == count * (TOKENS - 1)
    assert told.sum(name("output_tokens_total"), **high) == count * TOKENS
    assert (told.sum(name("prompt_tokens_total"), **high) > 0) == (count > 0)
    # This one is exact: it comes from Redis's clock. The others end here before Redis hears of it.
    waited = seconds(r.started_ms - r.submitted_ms for r in ran)
    assert told.sum(name("queue_seconds_sum"), **high) == pytest.approx(waited, abs=0.005 * count)
    first, whole = (told.sum(name(f"{each}_seconds_sum"), **high) for each in ("first_token", "job"))
    early = 0.01 * count
    assert waited <= first <= seconds(r.first_token_ms - r.submitted_ms for r in ran) + early
    assert first <= whole <= seconds(r.finished_ms - r.submitted_ms for r in ran) + early
    engine_first, engine = (told.sum(name(f"{each}_seconds_sum"), **high) for each in ("engine_first_token", "engine"))
    assert (first - engine_first, whole - engine) == pytest.approx((waited, waited), abs=0.005 * count)
    between = told.sum(name("between_tokens_seconds_sum"), **high)
    assert between == pytest.approx(engine - engine_first, abs=SLACK_S * count)


async def test_the_figures_are_the_run_s(watched: Watched) -> None:
    ran = await ran_streams(watched)
    runner = await ran_a_batch(watched)
    await waited_for_its_time(watched)
    cancelled, victims = await lost_a_worker(watched)

    survivor = watched.scrape("w1")
    attempts = "tokenfleet_worker_attempts_total"
    assert survivor.sum(attempts, end="dropped") == cancelled
    completed = sum(record.worker.endswith(".w1") for record in ran) + victims
    assert survivor.sum(attempts, end="completed", priority="high") == completed
    ended = STREAMS + ROWS + victims + cancelled + 1
    scheduler = await eventually(lambda: nothing_waits(watched, "scheduler", ended), timeout_s=20)
    check_scheduler(scheduler, ran, victims, cancelled)
    await handed_over(watched, scheduler)
    gateway = await asked_over_http(watched)

    assert watched.asked >= BY_JOURNEY, BY_JOURNEY - watched.asked
    # Whatever a role serves stands in the page, and the other way round.
    assert scheduler.own | survivor.own | runner.own | gateway.own == documented()


def documented() -> set[str]:
    return {line.split("`")[1] for line in metrics_page.page().splitlines() if line.startswith("| `")}


def test_each_metric_is_compared_with_what_happened() -> None:
    compared = BY_JOURNEY | BY_REPORT | BY_HAND
    assert compared <= documented()
    assert {name for name in documented() - compared if not name.startswith("DCGM_")} == BY_UNITS.keys()
    assert len(BY_UNITS) < 8


async def ran_streams(watched: Watched) -> list[JobRecord]:
    """Streams on both workers: each worker's figures are those of its jobs."""
    jobs = await streams(watched, STREAMS, TOKENS)
    for job in jobs:
        assert (await job.result(timeout=60)).state is State.COMPLETED
    ran = await records(jobs)
    for label in ("w1", "w2"):
        check_worker(watched.scrape(label), [record for record in ran if record.worker.endswith(f".{label}")])

    def engines_told() -> bool:
        told = [watched.scrape(label).sum("tokenfleet_engine_generated_tokens_total") for label in ("w1", "w2")]
        return sum(told) == STREAMS * TOKENS

    await eventually(engines_told, timeout_s=20)
    return ran


async def ran_a_batch(watched: Watched) -> Scrape:
    """A batch, by a runner; what that tells then."""
    batches = watched.fleet.batches
    name = (await batches.submit(batch_input(watched.folder / "in.jsonl"))).name

    async def ended() -> bool:
        return (await batches.get(name.id)).status.terminal

    await eventually(ended, timeout_s=60)
    usage = (await batches.get(name.id)).usage
    assert usage
    told = await eventually(lambda: told_of_its_end(watched), timeout_s=20)
    assert told.sum("tokenfleet_batch_takes_total") == 1
    assert told.sum("tokenfleet_batch_rows_total", end="completed") == ROWS
    assert told.sum("tokenfleet_batch_rows_total") == ROWS
    assert told.buckets("tokenfleet_batch_row_seconds") == ROWS
    assert told.sum("tokenfleet_batch_output_tokens_total") == usage.output_tokens == ROWS * TOKENS
    assert told.sum("tokenfleet_batch_prompt_tokens_total") == usage.input_tokens
    return told


async def waited_for_its_time(watched: Watched) -> None:
    job = await watched.fleet.submit(model=MODEL, prompt="later", delay=3_600)
    await eventually(lambda: watched.scrape("scheduler").sum("tokenfleet_delayed_jobs") == 1, timeout_s=20)
    assert await job.cancel() is State.DELAYED


async def lost_a_worker(watched: Watched) -> tuple[int, int]:
    """How many jobs were cancelled while they ran, and how many lost their worker."""
    jobs = await streams(watched, STREAMS, LONG_TOKENS)

    async def both_stream() -> dict[str, list[Job]]:
        on: dict[str, list[Job]] = {"w1": [], "w2": []}
        for job, record in zip(jobs, await records(jobs), strict=True):
            assert record.first_token_ms
            on[record.worker.rpartition(".")[2]].append(job)
        assert all(on.values())
        return on

    on = await eventually(both_stream, timeout_s=60)
    for job in on["w1"]:
        assert await job.cancel() is State.RUNNING
    watched.kill("w2")
    for job in on["w2"]:
        assert (await job.result(timeout=60)).state is State.COMPLETED
    victims = await records(on["w2"])
    assert [record.strikes for record in victims] == [1] * len(victims)
    return len(on["w1"]), len(victims)


async def asked_over_http(watched: Watched) -> Scrape:
    """A stream, whole answers, a path that is none and a limit, of a gateway."""
    route, body = "/v1/completions", {"model": MODEL, "prompt": "over HTTP", "max_tokens": TOKENS, "ignore_eos": True}
    url = f"http://127.0.0.1:{watched.ports['gateway']}"
    free, _ = await create_key(watched.fleet)
    scarce, _ = await create_key(watched.fleet, limits=Limits(requests_a_minute=1))
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, headers=bearer(free)) as http:
        streamed = await http.post(route, json={**body, "stream": True})
        whole = await http.post(route, json=body)
        assert (streamed.status_code, whole.status_code) == (200, 200)
        assert (await http.get("/nothing")).status_code == 404
        limited = [await http.post(route, json=body, headers=bearer(scarce)) for _ in range(2)]
        assert [answer.status_code for answer in limited] == [200, 429]
    told, name = watched.scrape("gateway"), "tokenfleet_gateway_{}".format
    assert told.sum(name("requests_total"), route=route, code="200") == 3
    assert told.sum(name("limited_total")) == told.sum(name("limited_total"), limit="requests") == 1
    assert told.sum(name("requests_total"), route="other", code="404") == 1
    assert told.sum(name("tokens_total"), kind="completion") == 3 * TOKENS
    assert told.sum(name("tokens_total"), kind="prompt") == 3 * whole.json()["usage"]["prompt_tokens"]
    assert told.sum(name("first_token_seconds_count")) == told.buckets(name("first_token_seconds"), route=route) == 1
    assert 0 < told.sum(name("first_token_seconds_sum")) <= streamed.elapsed.total_seconds()
    assert told.sum(name("open_streams"), kind="sse") == 0
    assert told.sum(name("sent_bytes_total")) >= len(streamed.content) + len(whole.content)
    return told


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


async def handed_over(watched: Watched, before: Scrape) -> None:
    """The next leader goes on with what Redis has counted; a standby tells of no lane."""
    watched.start("standby", "scheduler")
    await watched.answers("standby")
    standby = await eventually(lambda: stands_by(watched), timeout_s=20)
    assert not standby.has("tokenfleet_lane_jobs")
    kill(watched.pids["scheduler"], signal.SIGTERM)
    ended = int(before.sum("tokenfleet_jobs_ended_total"))
    after = await eventually(lambda: nothing_waits(watched, "standby", ended), timeout_s=20)
    assert after.sum("tokenfleet_scheduler_leader") == 1
    for series in ("jobs_ended_total", "strikes_total", "leases_lost_total"):
        assert after.sum(f"tokenfleet_{series}") == before.sum(f"tokenfleet_{series}")


def stands_by(watched: Watched) -> Scrape:
    told = watched.scrape("standby")
    assert told.sum("tokenfleet_scheduler_leader") == 0
    return told


def told_of_its_end(watched: Watched) -> Scrape:
    told = watched.scrape("runner")
    assert told.sum("tokenfleet_batch_ends_total", state="completed") == 1
    assert told.sum("tokenfleet_batches_owned") == 0
    return told


def nothing_waits(watched: Watched, scheduler: str, ended: int) -> Scrape:
    told = watched.scrape(scheduler)
    assert told.sum("tokenfleet_workers", state="active") == told.sum("tokenfleet_workers") == 1
    assert told.sum("tokenfleet_lane_jobs") == told.sum("tokenfleet_delayed_jobs") == 0
    # Its last look may be older than the last end.
    assert told.sum("tokenfleet_jobs_ended_total") == ended
    return told


def check_scheduler(told: Scrape, ran: list[JobRecord], victims: int, cancelled: int) -> None:
    high, medium = {"priority": "high"}, {"priority": "medium"}
    name = "tokenfleet_scheduler_{}".format
    assert told.sum("tokenfleet_jobs_ended_total", state="completed") == STREAMS + ROWS + victims
    assert told.sum("tokenfleet_jobs_ended_total", state="cancelled") == cancelled + 1
    assert told.sum("tokenfleet_jobs_ended_total", state="failed") == 0
    assert told.sum("tokenfleet_strikes_total") == told.sum(name("retries_total"), **high) == victims
    assert told.sum("tokenfleet_leases_lost_total") == 1
    assert told.sum("tokenfleet_set_aside_total") == told.sum("tokenfleet_dead_letters") == 0
    once = STREAMS + victims + cancelled
    assert told.sum(name("assignments_total"), **high) == once + victims
    assert told.sum(name("assignments_total"), **medium) == ROWS
    assert told.sum(name("wait_seconds_count"), **high) == told.buckets(name("wait_seconds"), **high) == once
    assert told.sum(name("wait_seconds_count"), **medium) == ROWS
    waited = seconds(r.assigned_ms - r.submitted_ms for r in ran)
    assert waited - SLACK_S <= told.sum(name("wait_seconds_sum"), **high) <= waited + SLACK_S * once
    decisions = told.sum(name("step_seconds_count"), step="decide")
    assert decisions == told.sum(name("step_seconds_count"), step="read") > 0
    assert told.sum(name("window_jobs_sum")) >= once + victims + ROWS
    assert told.sum(name("window_jobs_count")) == told.sum(name("windows_closed_total")) <= decisions
    assert told.sum(name("leader")) == 1
    # On a busy machine it may have lost the lead for a moment, and taken it again.
    assert told.sum(name("leads_total")) >= 1
    # Nobody fell silent before it began; and Redis, which has no file here, has room.
    assert told.sum("tokenfleet_redis_append_only") == 0
    assert told.sum("tokenfleet_redis_append_only_ok") == 1
    assert told.sum("tokenfleet_redis_memory_bytes") > 500_000
