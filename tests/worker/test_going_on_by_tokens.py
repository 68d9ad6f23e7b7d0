"""A worker whose engine tells tokens goes on by these: no text is cut into tokens a second time."""

from typing import Any

import pytest

from protocol.handle import Handle
from protocol.states import State
from protocol.wire import JsonObject, dumps
from tests.support.builders import SPEC
from tests.support.waiting import eventually
from tests.worker.stage import Flight, PuppetEngine, Stage, staged, word
from tests.worker.test_going_on import again, body
from worker.engine.answers import error_body
from worker.engine.base import EngineDead, EngineRefused

COMPLETION = SPEC.model_copy(update={"endpoint": "/v1/completions"})
PROMPT = list(range(10))
ONE, TWO, THREE, PART = 70, 71, 72, 99


def talkative() -> PuppetEngine:
    engine = PuppetEngine(continues_chats=True)
    engine.counts = {1: len(PROMPT)}
    engine.words = {ONE: "One", TWO: " two", THREE: " three"}
    return engine


def piece(text: str, *ids: int) -> JsonObject:
    chunk = word(text)
    chunk["choices"][0]["token_ids"] = list(ids)
    return chunk


def rest(text: str, *ids: int) -> JsonObject:
    """As a completion has it."""
    choice = {"index": 0, "text": text, "token_ids": list(ids), "prompt_token_ids": PROMPT, "logprobs": None}
    return {"id": "cmpl-2", "object": "text_completion", "created": 9, "choices": [choice]}


async def cut(stage: Stage, *pieces: JsonObject, **changes: Any) -> tuple[Handle, Flight]:
    """A job whose engine died after these chunks, and its next attempt on the engine."""
    handle, flight = await stage.begin(**{"body": dumps(body(max_tokens=9)), **changes})
    for chunk in pieces:
        flight.pass_on(chunk)
    said = "".join(chunk["choices"][0]["delta"]["content"] for chunk in pieces)
    await eventually(lambda: stage.log_text(handle) == said)
    return handle, await died(stage, handle, flight)


async def died(stage: Stage, handle: Handle, flight: Flight) -> Flight:
    flight.fail(EngineDead("the engine died"))
    await eventually(lambda: flight.closed)
    await again(stage, handle)
    return await stage.engine.flight("a")


async def test_a_chat_goes_on_as_a_completion_in_tokens(redis_url: str) -> None:
    async with staged(redis_url, talkative()) as stage:
        first = word("One") | {"prompt_token_ids": PROMPT, "created": 5}
        first["choices"][0]["token_ids"] = [ONE]
        handle, flight = await cut(stage, first, piece(" t", TWO))
        assert flight.request.endpoint == "/v1/completions"
        assert flight.request.body == {"model": "m", "prompt": [*PROMPT, ONE, TWO], "max_tokens": 7}
        flight.pass_on(rest(" thr", THREE))
        await eventually(lambda: stage.log_text(handle) == "One two thr")
        again_flight = await died(stage, handle, flight)
        assert again_flight.request.body["prompt"] == [*PROMPT, ONE, TWO, THREE]
        assert again_flight.request.body["max_tokens"] == 6
        last = rest("", 2)
        last["choices"][0]["finish_reason"] = "stop"
        again_flight.pass_on(last)
        again_flight.end()
        await stage.reaches(handle, State.COMPLETED)
        assert stage.outcome(handle).text == stage.log_text(handle) == "One two three"
        chunks = [chunk for frame in stage.driver.log(handle) for chunk in frame.chunks]
        assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
        assert {chunk["id"] for chunk in chunks} == {"c"}
        assert b"token_ids" not in dumps(chunks)


async def test_an_engine_that_refuses_tokens_is_asked_for_all_of_it(valkey_url: str) -> None:
    async with staged(valkey_url, talkative()) as stage:
        handle, flight = await cut(stage, piece("One t", ONE, TWO))
        flight.fail(EngineRefused(400, error_body("no", "bad_request")))
        await eventually(lambda: flight.closed)
        flight = await stage.engine.flight("a")
        assert flight.request.body == body(max_tokens=9)
        flight.say("Uno")
        flight.end()
        await stage.reaches(handle, State.COMPLETED)
        assert stage.outcome(handle).text == "Uno"


async def test_a_token_that_is_part_of_a_character_is_generated_again(valkey_url: str) -> None:
    async with staged(valkey_url, talkative()) as stage:
        _, flight = await cut(stage, piece("One", ONE, PART))
        assert flight.request.body["prompt"] == [*PROMPT, ONE]
        assert flight.request.body["max_tokens"] == 8


@pytest.mark.parametrize("pieces", [[piece("Uno", ONE)], [piece("One", ONE), word(" two")]])
async def test_where_the_tokens_are_not_the_text_it_goes_on_by_text(valkey_url: str, pieces: list[JsonObject]) -> None:
    async with staged(valkey_url, talkative()) as stage:
        _, flight = await cut(stage, *pieces)
        assert flight.request.endpoint == "/v1/chat/completions"
        assert flight.request.body["continue_final_message"] is True


async def test_tokens_without_text_are_kept_and_not_shown(valkey_url: str) -> None:
    async with staged(valkey_url, talkative()) as stage:
        handle, flight = await stage.begin(body=dumps(body(max_tokens=9)))
        for chunk in (piece("", ONE), piece("One", TWO), piece("", THREE)):
            flight.pass_on(chunk)
        flight.pass_on(piece(" two t"))
        await eventually(lambda: stage.log_text(handle) == "One two t")
        assert "" not in [
            chunk["choices"][0]["delta"]["content"] for f in stage.driver.log(handle) for chunk in f.chunks
        ]
        flight = await died(stage, handle, flight)
        assert flight.request.body["prompt"] == [*PROMPT, ONE, TWO, THREE]


async def test_white_space_at_the_end_is_no_matter(valkey_url: str) -> None:
    engine = talkative()
    engine.words[TWO] = "\n\n"
    async with staged(valkey_url, engine) as stage:
        _, flight = await cut(stage, piece("One\n\n", ONE, TWO))
        assert flight.request.body["prompt"] == [*PROMPT, ONE, TWO]


async def test_a_spent_budget_still_brings_the_text_that_was_held_back(valkey_url: str) -> None:
    async with staged(valkey_url, talkative()) as stage:
        handle, flight = await stage.begin(body=dumps(body(max_tokens=2)))
        flight.pass_on(piece("One t", ONE, TWO))
        await eventually(lambda: stage.log_text(handle) == "One t")
        flight.fail(EngineDead("the engine died"))
        await again(stage, handle)
        await stage.reaches(handle, State.COMPLETED)
        outcome = stage.outcome(handle)
        assert outcome.text == stage.log_text(handle) == "One two"
        assert (outcome.usage["prompt_tokens"], outcome.usage["completion_tokens"]) == (len(PROMPT), 2)


async def test_who_asked_for_tokens_sees_them(valkey_url: str) -> None:
    async with staged(valkey_url, talkative()) as stage:
        asked = body(max_tokens=9, return_token_ids=True)
        handle, flight = await cut(stage, piece("One", ONE), body=dumps(asked))
        assert b"token_ids" in dumps([chunk for frame in stage.driver.log(handle) for chunk in frame.chunks])
        assert flight.request.body == asked


async def test_a_prompt_of_tokens_goes_on(valkey_url: str) -> None:
    engine = talkative()
    async with staged(valkey_url, engine) as stage:
        asked = {"model": "m", "prompt": [5, 6], "max_tokens": 9}
        handle, flight = await stage.begin(body=dumps(asked), spec=COMPLETION)
        flight.pass_on(rest("One", ONE))
        await eventually(lambda: stage.log_text(handle) == "One")
        flight = await died(stage, handle, flight)
        assert flight.request.body == {"model": "m", "prompt": [5, 6, ONE], "max_tokens": 8}
        flight.pass_on(rest(" two", TWO))
        await eventually(lambda: stage.log_text(handle) == "One two")
        assert stage.driver.log(handle)[-1].ids == (TWO,)
