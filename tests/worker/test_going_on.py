"""A worker goes on with what earlier attempts have said, or starts over, on a real server."""

from typing import Any

import pytest

from protocol import functions, keys
from protocol.handle import Handle
from protocol.states import State
from protocol.wire import JsonObject, dumps
from tests.support.builders import SPEC, a_handle
from tests.support.waiting import eventually
from tests.worker.stage import END, Flight, PuppetEngine, Stage, staged, word
from worker.engine.answers import error_body
from worker.engine.base import EngineDead, EngineFault, EngineRefused
from worker.outgoing import Outgoing

USER = {"role": "user", "content": "Count"}
BATCH = SPEC.model_copy(update={"stream": False})


def body(**more: Any) -> JsonObject:
    return {"model": "m", "messages": [USER], **more}


def rest(**more: Any) -> JsonObject:
    said = {"role": "assistant", "content": "One two"}
    return body(messages=[USER, said], add_generation_prompt=False, continue_final_message=True, **more)


def talkative() -> PuppetEngine:
    return PuppetEngine(continues_chats=True)


async def interrupted(stage: Stage, *, error: Exception | None = None, **changes: Any) -> tuple[Handle, Flight]:
    """A job that has said two words when its engine failed, and its next attempt on the engine."""
    asked = {"body": dumps(body()), **changes}
    handle, flight = await stage.begin(**asked)
    flight.say("One", " two")
    if asked.get("spec", SPEC).stream:
        await eventually(lambda: stage.log_text(handle) == "One two")
    flight.fail(error or EngineDead("the engine died"))
    await eventually(lambda: flight.closed)
    await again(stage, handle)
    return handle, await stage.engine.flight("a")


async def again(stage: Stage, handle: Handle) -> None:
    """The dispatcher assigns it once more, when its retry is due."""
    await eventually(lambda: stage.driver.job(handle).state in (State.QUEUED, State.DELAYED))
    await stage.assign_again(handle)


async def test_a_stream_goes_on_after_its_engine_died(redis_url: str) -> None:
    async with staged(redis_url, talkative()) as stage:
        handle, flight = await interrupted(stage, body=dumps(body(max_tokens=9, temperature=1)))
        assert flight.request.body == rest(max_tokens=7, temperature=1)
        assert flight.request.prompt_tokens == SPEC.prompt_tokens + 2
        flight.pass_on({**word(""), "id": "other"})
        flight.pass_on({**word(" three"), "id": "other", "created": 5})
        flight.end()
        await stage.reaches(handle, State.COMPLETED)
        assert stage.log_text(handle) == stage.outcome(handle).text == "One two three"
        *frames, seal = stage.driver.log(handle)
        assert [frame.seq for frame in frames] == list(range(1, len(frames) + 1))
        assert seal.seq == len(frames) + 1
        assert len({frame.attempt for frame in frames}) == 2
        assert {chunk["id"] for frame in frames for chunk in frame.chunks} == {"c"}
        assert stage.driver.job(handle).strikes == 1


async def test_usage_is_that_of_the_whole(valkey_url: str) -> None:
    async with staged(valkey_url, talkative()) as stage:
        handle, flight = await interrupted(stage)
        flight.say(" three")
        usage = {"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 13}
        end = END | {"usage": usage | {"prompt_tokens_details": {"cached_tokens": 11}}}
        flight.pass_on(end)
        flight.fail(EngineFault("it broke off behind its end"))
        job = await stage.reaches(handle, State.DELAYED)
        await again(stage, handle)
        job = await stage.reaches(handle, State.COMPLETED)
        assert (job.tries, stage.outcome(handle).text) == (1, "One two three")
        told = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
        assert stage.outcome(handle).usage == told | {"prompt_tokens_details": {"cached_tokens": 10}}
        # Its last chunk was there already: the engine was not asked a third time.
        assert len(stage.engine.flights) == 2


async def test_the_engines_own_count_decides_over_the_budget(valkey_url: str) -> None:
    engine = talkative()
    engine.counts = {1: 10, 2: 15}
    async with staged(valkey_url, engine) as stage:
        _, flight = await interrupted(stage, body=dumps(body(max_tokens=9)))
        assert flight.request.body == rest(max_tokens=4)


async def test_a_spent_budget_ends_the_job_without_the_engine(valkey_url: str) -> None:
    async with staged(valkey_url, talkative()) as stage:
        handle, flight = await stage.begin(body=dumps(body(max_tokens=2)))
        flight.say("One", " two")
        await eventually(lambda: stage.log_text(handle) == "One two")
        flight.fail(EngineDead("the engine died"))
        await again(stage, handle)
        await stage.reaches(handle, State.COMPLETED)
        outcome = stage.outcome(handle)
        assert (outcome.text, outcome.usage["completion_tokens"]) == ("One two", 2)
        assert outcome.usage["prompt_tokens"] == SPEC.prompt_tokens
        assert outcome.body
        assert outcome.body["choices"][0]["finish_reason"] == "length"
        assert len(stage.engine.flights) == 1
        assert stage.log_text(handle) == "One two"


@pytest.mark.parametrize("before", ["refused", "refused later"])
async def test_an_engine_that_refuses_to_go_on_is_asked_for_all_of_it(valkey_url: str, before: str) -> None:
    async with staged(valkey_url, talkative()) as stage:
        handle, flight = await interrupted(stage)
        attempts = stage.driver.job(handle).attempt
        if before == "refused later":
            flight.pass_on(word(""))
        flight.fail(EngineRefused(400, error_body("no", "bad_request")))
        await eventually(lambda: flight.closed)
        whole = await stage.engine.flight("a")
        assert whole.request.body == body()
        whole.say("Uno")
        whole.end()
        job = await stage.reaches(handle, State.COMPLETED)
        assert (job.attempt, job.strikes, job.tries) == (attempts, 1, 0)
        assert stage.outcome(handle).text == "Uno"
        log = stage.driver.log(handle)
        assert next(frame.seq for frame in log if frame.attempt == attempts) == 1


@pytest.mark.parametrize("more", [{"n": 2}, {"tools": [{}]}, {"logprobs": True}, {"seed": 3}])
async def test_what_cannot_be_gone_on_with_starts_over(valkey_url: str, more: JsonObject) -> None:
    async with staged(valkey_url, talkative()) as stage:
        handle, flight = await interrupted(stage, body=dumps(body(**more)))
        assert flight.request.body == body(**more)
        flight.say("Uno")
        flight.end()
        await stage.reaches(handle, State.COMPLETED)
        assert stage.outcome(handle).text == "Uno"


async def test_an_engine_that_may_answer_instead_starts_over(valkey_url: str) -> None:
    async with staged(valkey_url, PuppetEngine()) as stage:
        _, flight = await interrupted(stage)
        assert flight.request.body == body()


async def test_a_job_that_does_not_stream_goes_on_after_its_engine_failed(valkey_url: str) -> None:
    async with staged(valkey_url, talkative()) as stage:
        handle, flight = await interrupted(stage, spec=BATCH, error=EngineFault("the engine's stream broke off"))
        assert flight.request.body == rest()
        flight.say(" three")
        flight.end()
        await stage.reaches(handle, State.COMPLETED)
        assert stage.outcome(handle).text == "One two three"


async def test_a_text_that_is_gone_while_it_is_gone_on_with_begins_anew(valkey_url: str) -> None:
    async with staged(valkey_url, talkative()) as stage:
        handle, flight = await interrupted(stage)
        stage.driver.redis.delete(keys.tokens(handle))
        flight.say(" three")
        await eventually(lambda: flight.closed)
        await again(stage, handle)
        whole = await stage.engine.flight("a")
        assert whole.request.body == body()
        whole.say("Uno")
        whole.end()
        job = await stage.reaches(handle, State.COMPLETED)
        assert job.strikes == 1
        assert stage.outcome(handle).text == stage.log_text(handle) == "Uno"


async def test_a_drained_workers_stream_goes_on_elsewhere(valkey_url: str) -> None:
    async with staged(valkey_url, talkative()) as stage:
        handle, flight = await stage.begin(body=dumps(body()))
        flight.say("One", " two")
        await eventually(lambda: stage.log_text(handle) == "One two")
        stage.stop.signal()
        stage.stop.signal()
        await eventually(lambda: flight.closed)
        await stage.task
        async with staged(valkey_url, talkative()) as other:
            await other.assign_again(handle)
            flight = await other.engine.flight("a")
            assert flight.request.body == rest()
            flight.say(" three")
            flight.end()
            job = await other.reaches(handle, State.COMPLETED)
            assert (job.strikes, other.log_text(handle)) == (0, "One two three")


async def test_an_attempt_that_only_named_its_speaker_is_gone_on_with(valkey_url: str) -> None:
    async with staged(valkey_url, PuppetEngine()) as stage:
        handle, flight = await stage.begin(body=dumps(body()))
        flight.pass_on({"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        await eventually(lambda: len(stage.driver.log(handle)) == 1)
        flight.fail(EngineDead("the engine died"))
        await again(stage, handle)
        flight = await stage.engine.flight("a")
        assert flight.request.body == body()
        flight.say("One")
        await eventually(lambda: stage.log_text(handle) == "One")
        assert [frame.seq for frame in stage.driver.log(handle)] == [1, 2]
        assert stage.driver.run(functions.cancel(handle))


async def test_tokens_of_an_answer_that_nobody_reads_along_count_for_its_budget(valkey_url: str) -> None:
    """Its chunks are merged before they are told."""
    async with staged(valkey_url, talkative()) as stage:
        handle, flight = await stage.begin(body=dumps(body(max_tokens=100)), spec=BATCH)
        flight.say(*(f" {number}" for number in range(60)))
        flight.fail(EngineDead("the engine died"))
        await eventually(lambda: flight.closed)
        assert stage.driver.job(handle).state is not State.COMPLETED
        await again(stage, handle)
        flight = await stage.engine.flight("a")
        assert flight.request.body["max_tokens"] == 40
        flight.say(" end")
        flight.end()
        job = await stage.reaches(handle, State.COMPLETED)
        assert stage.outcome(handle).usage["completion_tokens"] == 61
        # Its first token is that of the attempt that ended it, not the moment when the other one gave it back.
        assert job.first_token_ms >= job.started_ms


async def test_what_stands_in_the_log_by_hand_makes_a_job_start_over(valkey_url: str) -> None:
    async with staged(valkey_url, talkative()) as stage:
        handle, flight = await stage.begin(body=dumps(body()))
        flight.say("One")
        await eventually(lambda: stage.log_text(handle) == "One")
        attempt = stage.driver.job(handle).attempt
        stage.driver.redis.xadd(keys.tokens(handle), {"f": dumps([{"choices": [5]}])}, id=f"{attempt}-2")
        flight.fail(EngineDead("the engine died"))
        await again(stage, handle)
        flight = await stage.engine.flight("a")
        assert flight.request.body == body()
        flight.say("Uno")
        flight.end()
        await stage.reaches(handle, State.COMPLETED)
        assert stage.outcome(handle).text == "Uno"


async def test_what_was_said_before_is_kept_when_time_is_over_before_an_attempts_first_token(valkey_url: str) -> None:
    async with staged(valkey_url, talkative()) as stage:
        spec = SPEC.model_copy(update={"time_limit_s": 0.5})
        handle, _ = await interrupted(stage, body=dumps(body()), spec=spec)
        await stage.reaches(handle, State.FAILED)
        outcome = stage.outcome(handle)
        assert outcome.error
        assert (outcome.error.code, outcome.text) == ("request_timeout", "One two")


def test_what_an_engine_brought_before_it_refused_is_forgotten() -> None:
    out = Outgoing(a_handle("a"), 2, "w1")
    out.begin((1, 3))
    out.note([7, 8])
    out.begin(None)
    out.say(word("Uno"))
    (call,) = out.calls()
    assert "tokens" not in str(call.command[-2:])
