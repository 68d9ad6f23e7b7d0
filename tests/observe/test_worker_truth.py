"""What a worker tells of itself is what it has reported to Redis, under a load in which no figure stays zero."""

import os
import signal
from functools import partial

from producer.jobs import Job
from protocol import reads
from protocol.call import run
from protocol.handle import Shard
from protocol.messages import WorkerRecord
from protocol.states import State
from tests.observe.conftest import MODEL, Watched
from tests.observe.scraping import Scrape
from tests.observe.truth import BY_REPORT
from tests.support.waiting import eventually

LEASE_S = 3
SLOW = {"TOKENFLEET_LEASE_S": str(LEASE_S), "TOKENFLEET_BEAT_S": "0.4", "TOKENFLEET_TARGET_TOKEN_MS": "5"}
FIGURES = {
    *("load_score", "kv_ratio", "kv_used_tokens", "kv_capacity_tokens"),
    *("running_requests", "waiting_requests", "capacity_requests", "prefilling_requests"),
    *("pending_prefill_tokens", "slow_streams_ratio"),
    *("prompt_tokens", "generated_tokens", "prefix_query_tokens", "prefix_hit_tokens"),
}
"""All but `memory_ratio` and `refusing`: a simulated engine takes none, and refuses nobody."""
LONG = "a word " * 12_000
"""So many tokens that the simulated engine needs some steps for them, and takes nobody else meanwhile."""


async def worker(watched: Watched) -> WorkerRecord:
    (shard,) = [Shard(MODEL)]
    for name, lease_ms in (await run(watched.fleet.redis, reads.leases(shard))).items():
        record = await run(watched.fleet.redis, reads.worker_record(shard, name, lease_ms))
        if record:
            return record
    raise AssertionError("no worker")


async def at_one_moment(watched: Watched) -> tuple[Scrape, WorkerRecord]:
    """What it tells, and its last report: nothing has come between them."""
    before = await worker(watched)
    told = watched.scrape("w1")
    after = await worker(watched)
    assert (before.report, before.state) == (after.report, after.state)
    return told, after


def check(told: Scrape, record: WorkerRecord) -> set[str]:
    """Those that are not zero."""
    report = record.report
    gauges = {
        "load_score": report.load_score,
        "memory_ratio": report.memory,
        "kv_ratio": report.kv,
        "kv_used_tokens": report.kv_used_tokens,
        "kv_capacity_tokens": report.kv_total_tokens,
        "running_requests": report.running,
        "waiting_requests": report.waiting,
        "capacity_requests": report.capacity,
        "prefilling_requests": report.prefilling,
        "pending_prefill_tokens": report.pending_prefill_tokens,
        "slow_streams_ratio": report.slow_share,
        "refusing": float(report.refusing),
    }
    counters = {
        "prompt_tokens": report.prompt_tokens,
        "generated_tokens": report.generated_tokens,
        "prefix_query_tokens": report.prefix_query_tokens,
        "prefix_hit_tokens": report.prefix_hit_tokens,
    }
    assert {name: told.sum(f"tokenfleet_worker_{name}") for name in gauges} == gauges
    assert {name: told.sum(f"tokenfleet_engine_{name}_total") for name in counters} == counters
    return {name for name, value in (gauges | counters).items() if value}


def check_state(told: Scrape, record: WorkerRecord) -> None:
    assert told.sum("tokenfleet_worker_state", state=record.state) == told.sum("tokenfleet_worker_state") == 1
    for state, seconds in record.report.state_s.items():
        assert told.sum("tokenfleet_worker_state_seconds_total", state=state) == seconds, state


async def ask(watched: Watched, prompt: str, tokens: int) -> Job:
    return await watched.fleet.submit(model=MODEL, prompt=prompt, stream=True, max_tokens=tokens, ignore_eos=True)


async def test_a_worker_tells_what_it_reports(bare: Watched) -> None:
    bare.start("scheduler", "scheduler", "--policy", "least-requests", **SLOW)
    words = ("worker", "--engine", "sim", "--model", MODEL, "--label", "w1", "--slots", "8", "--sim-speed", "0.1")
    bare.start("w1", *words, "--standby", **SLOW)
    await bare.answers("w1")

    async def is_in(state: str) -> bool:
        told, record = await at_one_moment(bare)
        check_state(told, record)
        return record.state == state and state in record.report.state_s

    await eventually(lambda: is_in("warm"), timeout_s=30)
    # Nobody else is there, so the scheduler promotes it.
    for _ in range(2):
        first = await ask(bare, "the same beginning " * 20, 2)
        assert (await first.result(timeout=60)).state is State.COMPLETED
    await eventually(lambda: is_in("active"), timeout_s=30)

    streaming = [await ask(bare, f"stream {n}", 20_000) for n in range(3)]
    for job in streaming:
        await eventually(partial(spoke, job), timeout_s=60)
    filling = [await ask(bare, f"{n} {LONG}", 20) for n in range(2)]

    seen: set[str] = set()

    async def told_well() -> bool:
        seen.update(check(*await at_one_moment(bare)))
        # Compared with zeros nothing would be shown.
        return seen >= FIGURES

    await eventually(told_well, timeout_s=60)
    for job in [*streaming, *filling]:
        await job.cancel()
    await stalls_until_its_lease_is_over(bare)
    assert bare.asked >= BY_REPORT, BY_REPORT - bare.asked


async def spoke(job: Job) -> bool:
    return bool((await job.info()).record.first_token_ms)


async def stalls_until_its_lease_is_over(watched: Watched) -> None:
    assert watched.scrape("w1").sum("tokenfleet_worker_leases_lost_total") == 0
    os.kill(watched.pids["w1"], signal.SIGSTOP)

    async def gone() -> bool:
        return not await run(watched.fleet.redis, reads.leases(Shard(MODEL)))

    await eventually(gone, timeout_s=10 * LEASE_S)
    os.kill(watched.pids["w1"], signal.SIGCONT)

    def lost() -> bool:
        return watched.scrape("w1").sum("tokenfleet_worker_leases_lost_total") == 1

    await eventually(lost, timeout_s=30)
