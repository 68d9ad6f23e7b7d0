"""The dispatcher is told whose prompts the engine's cache holds, by its own events."""

import pytest

from bench.vllm_env.models import TINY
from producer.fleet import Fleet
from producer.jobs import Job
from protocol import watch
from protocol.call import run
from protocol.messages import Outcome
from protocol.states import State
from tests.support.waiting import eventually
from tests.vllm.site import Site, Staff

pytestmark = pytest.mark.vllm

LONG = "a long prompt that others share " * 68
"""Two blocks of the producer's hashes, and 17 of the engine's cache: a byte is a token."""


async def ask(fleet: Fleet, prompt: str = LONG) -> tuple[Job, Outcome]:
    job = await fleet.submit(model=TINY, prompt=prompt, max_tokens=2)
    outcome = await job.result(30)
    assert outcome.state is State.COMPLETED, outcome
    return job, outcome


def cached_tokens(outcome: Outcome) -> int:
    return (outcome.usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


async def told(fleet: Fleet, worker: Staff) -> frozenset[str]:
    """The hashes that Redis knows of it."""
    placed = await worker.reaches(fleet, "active")
    return await run(fleet.redis, watch.prefixes(placed.shard, placed.record.id))


async def test_a_prompt_is_told_once_it_is_cached_and_found_again(fleet: Fleet, tiny: Staff) -> None:
    prompt = f"first {LONG}"
    job, outcome = await ask(fleet, prompt)
    assert cached_tokens(outcome) == 0
    hashes = set((await job.info()).record.spec.prefix)
    assert len(hashes) == 2

    async def all_told() -> bool:
        return hashes <= await told(fleet, tiny)

    assert await eventually(all_told)
    before = (await tiny.reaches(fleet, "active")).record.report
    _, outcome = await ask(fleet, prompt)
    assert cached_tokens(outcome) >= 2_048

    async def counted() -> bool:
        report = (await tiny.reaches(fleet, "active")).record.report
        return report.prefix_hit_tokens - before.prefix_hit_tokens == cached_tokens(outcome)

    assert await eventually(counted)


async def test_another_tenant_hits_nothing(site: Site, fleet: Fleet, tiny: Staff) -> None:
    prompt = f"second {LONG}"
    await ask(fleet, prompt)
    assert cached_tokens((await ask(fleet, prompt))[1]) > 0
    async with site.connect("another") as other:
        _, outcome = await ask(other, prompt)
    assert cached_tokens(outcome) == 0


async def test_what_gave_way_is_no_longer_told(fleet: Fleet, tiny: Staff) -> None:
    job, _ = await ask(fleet, f"third {LONG}")
    hashes = set((await job.info()).record.spec.prefix)

    async def all_told() -> bool:
        return hashes <= await told(fleet, tiny)

    assert await eventually(all_told)
    # Another of this size does not fit beside it.
    await ask(fleet, f"fourth {LONG}")

    async def given_way() -> bool:
        return not hashes <= await told(fleet, tiny)

    assert await eventually(given_way)
