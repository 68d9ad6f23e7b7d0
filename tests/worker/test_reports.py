"""What a worker's load reports say of its own jobs, and when they come."""

from functools import partial

from protocol.messages import LoadReport
from protocol.settings import Settings
from tests.support.builders import SPEC
from tests.support.waiting import eventually
from tests.worker.stage import FAST, PuppetEngine, Stage, staged
from worker.engine.base import EngineBusy

SELDOM = Settings(beat_s=5.0, report_s=0.0, lease_s=20.0, frame_s=0.01, redis_patience_s=5, drain_s=20)
"""A beat by the clock would come too late for the tests."""
SHARED = SPEC.model_copy(update={"prompt_tokens": 1_000, "prefix": ("h0", "h1", "h2")})


async def reported(stage: Stage, **wanted: object) -> LoadReport:
    """The report, once it says this."""

    async def says() -> LoadReport:
        report = (await stage.worker()).report
        found = {name: getattr(report, name) for name in wanted}
        assert found == wanted
        return report

    return await eventually(says, timeout_s=3)


async def test_reports_follow_each_job_at_once(valkey_url: str) -> None:
    async with staged(valkey_url, settings=SELDOM) as stage:
        await stage.worker()
        handle, attempt = await stage.assign()
        await reported(stage, taken=attempt, prefilling=1, pending_prefill_tokens=SPEC.prompt_tokens)
        flight = await stage.engine.flight("a")
        flight.say("One")
        await reported(stage, prefilling=0, pending_prefill_tokens=0)
        flight.end()
        await reported(stage, running=0)
        assert stage.outcome(handle).text == "One"


async def test_a_first_token_is_told_with_its_time_for_a_second(valkey_url: str) -> None:
    async with staged(valkey_url, settings=FAST) as stage:
        told: list[tuple[int, int]] = []
        _, attempt = await stage.assign()
        flight = await stage.engine.flight("a")
        flight.say("One")

        async def seen() -> bool:
            told.extend((await stage.worker()).report.firsts)
            assert told
            return True

        await eventually(seen)
        ((number, ms),) = set(told)
        assert number == attempt
        assert 0 <= ms < 5_000
        await reported(stage, firsts=())
        flight.say(" two")
        flight.end()


async def test_what_the_cache_holds_is_not_pending(valkey_url: str) -> None:
    engine = PuppetEngine()
    engine.held_prefixes = frozenset({"h0", "h1"})
    async with staged(valkey_url, engine) as stage:
        await stage.assign(spec=SHARED)
        await reported(stage, prefilling=1, pending_prefill_tokens=1_000 - 512)


async def test_what_an_earlier_job_will_bring_is_not_pending_twice(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        await stage.assign("a", spec=SHARED)
        await reported(stage, pending_prefill_tokens=1_000)
        await stage.assign("b", spec=SHARED.model_copy(update={"prefix": ("h0", "h1", "x2")}))
        await stage.assign("c", spec=SHARED.model_copy(update={"prefix": ("x0", "h1", "h2")}))
        await reported(stage, prefilling=3, pending_prefill_tokens=1_000 + 488 + 1_000)


async def test_streams_that_are_slower_than_the_target_are_reported(valkey_url: str) -> None:
    settings = FAST.model_copy(update={"target_token_ms": 1.0})
    async with staged(valkey_url, settings=settings) as stage:
        _, slow = await stage.begin("slow")
        _, silent = await stage.begin("silent", spec=SPEC.model_copy(update={"stream": False}))
        slow.say(*"12345")
        silent.say(*"12345")
        await reported(stage, slow_share=1.0)
        slow.end()
        await reported(stage, slow_share=0.0)


async def test_a_refusing_engine_is_reported_as_full_and_one_job_asks_after_the_pause(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        _, flight = await stage.begin("long")
        flight.say("One")
        handle, refused = await stage.begin("a")
        refused.fail(EngineBusy(retry_after_s=0))
        report = await reported(stage, refusing=True)
        assert report.load_score >= 0.3, "as if all its places were taken"
        assert (await stage.worker()).slots == 0
        flight.say(" two")

        async def takes(slots: int) -> bool:
            return (await stage.worker()).slots == slots

        await eventually(partial(takes, 2))
        await stage.assign_again(handle)
        asking = await stage.engine.flight("a")
        await eventually(partial(takes, 0))
        asking.say("One")
        await reported(stage, refusing=False)
        await eventually(partial(takes, stage.engine.slots))
        asking.end()
        flight.end()
