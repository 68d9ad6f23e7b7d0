"""The simulated engine through the interface that workers use."""

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from protocol.errors import SetupError
from protocol.wire import JsonObject
from tests.worker.engine.attempts import chat, collect, completion, embedding
from worker.assemble import assemble
from worker.engine.base import Capacity, EngineDead, EngineLoad, EngineRefused, EngineRequest, SleepRefused
from worker.engine.sim.engine import SimEngine

# Steps of microseconds: real sleeping, no waiting.
FAST = 10_000.0


@pytest.fixture(params=["h100-8b", "instant"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[SimEngine]:
    built = SimEngine(request.param, speed=FAST, context_tokens=1000)
    assert await built.start() == Capacity(256, 1000, 430_000, 16, step_tokens=8192, continues_chats=True)
    yield built
    await built.close()


@pytest.fixture
async def stepping() -> AsyncIterator[SimEngine]:
    built = SimEngine(speed=FAST, slots=2)
    await built.start()
    yield built
    await built.close()


async def answer(engine: SimEngine, wanted: EngineRequest) -> JsonObject:
    return assemble(wanted.endpoint, await collect(engine, wanted))


async def test_equal_bodies_get_equal_readable_texts(engine: SimEngine) -> None:
    one, same, other = [await answer(engine, chat(content)) for content in ("Hi", "Hi", "Ho")]
    text = one["choices"][0]["message"]["content"]
    assert text == same["choices"][0]["message"]["content"] != other["choices"][0]["message"]["content"]
    assert len(text.split()) == one["usage"]["completion_tokens"] >= 16
    assert one["choices"][0]["finish_reason"] == "stop"


async def test_a_limit_cuts_the_same_text(engine: SimEngine) -> None:
    whole, cut = await answer(engine, chat("Hi")), await answer(engine, chat("Hi", max_tokens=5))
    text = cut["choices"][0]["message"]["content"]
    assert whole["choices"][0]["message"]["content"].startswith(text)
    assert cut["choices"][0]["finish_reason"] == "length"
    assert cut["usage"]["completion_tokens"] == len(text.split()) == 5


async def test_a_load_test_gets_exactly_the_length_it_asks_for(engine: SimEngine) -> None:
    full = await answer(engine, chat("Hi", max_completion_tokens=300, ignore_eos=True))
    assert full["usage"]["completion_tokens"] == 300


async def test_completions_answer_each_prompt_n_times(engine: SimEngine) -> None:
    full = await answer(engine, completion(["a", "b"], n=2, max_tokens=4))
    assert [choice["index"] for choice in full["choices"]] == [0, 1, 2, 3]
    assert len({choice["text"] for choice in full["choices"]}) == 4
    assert full["usage"]["completion_tokens"] == 16


async def test_an_embedding_is_a_unit_vector_of_the_content(engine: SimEngine) -> None:
    (full,) = await collect(engine, embedding(["a", "b"], dimensions=100))
    one, other = [row["embedding"] for row in full["data"]]
    assert one != other
    assert math.hypot(*one) == pytest.approx(1.0)
    assert len(one) == 100
    (again,) = await collect(engine, embedding("a", dimensions=100))
    assert again["data"][0]["embedding"] == one
    (coded,) = await collect(engine, embedding("a", encoding_format="base64"))
    assert isinstance(coded["data"][0]["embedding"], str)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (chat("Hi", max_tokens=0.5), "invalid_value"),
        (chat("Hi", n=-1), "invalid_value"),
        (completion(""), "missing_required_parameter"),
        (chat("Hi", prompt_tokens=1000), "context_length_exceeded"),
    ],
)
async def test_a_bad_body_is_refused(engine: SimEngine, wanted: EngineRequest, code: str) -> None:
    with pytest.raises(EngineRefused) as caught:
        await collect(engine, wanted)
    assert (caught.value.status_code, caught.value.body["error"]["code"]) == (400, code)


async def test_chunks_come_in_openai_order(stepping: SimEngine) -> None:
    chunks = await collect(stepping, chat("Hi", max_tokens=2))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert [list(delta) for delta in deltas[1:]] == [["content"], ["content"], []]
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == chunks[-1]["usage"]["prompt_tokens"] + 2
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}


async def test_a_repeated_prompt_is_found_in_the_cache(stepping: SimEngine) -> None:
    content = "word " * 100
    first, second = [await answer(stepping, chat(content, max_tokens=1)) for _ in range(2)]
    assert first["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 100


async def test_the_last_prompts_that_the_cache_has_room_for_are_told(stepping: SimEngine) -> None:
    assert stepping.prefixes() == frozenset()
    reader = stepping.generate(replace(chat("word " * 300, max_tokens=9), prefix=("h",)))
    await anext(reader)
    assert stepping.prefixes() == {"h"}
    await reader.aclose()
    await stepping.sleep()
    assert stepping.prefixes() == frozenset()
    await stepping.wake()


async def test_requests_run_together_and_the_rest_waits(stepping: SimEngine) -> None:
    readers = [stepping.generate(chat(f"{n}", max_tokens=10_000, ignore_eos=True)) for n in range(3)]
    waiting = [asyncio.ensure_future(anext(reader)) for reader in readers]
    await asyncio.wait(waiting[:2])
    load = await stepping.load()
    assert (load.running, load.waiting) == (2, 1)
    assert load.kv_used_tokens > 0
    await readers[0].aclose()
    await waiting[2]
    for reader in readers[1:]:
        await reader.aclose()
    load = await stepping.load()
    assert (load.running, load.waiting, load.kv_used_tokens) == (0, 0, 0)


async def test_all_tokens_are_counted_until_it_starts_anew(stepping: SimEngine) -> None:
    for choices in (1, 3):
        await collect(stepping, chat("Hi", max_tokens=10, ignore_eos=True, n=choices))
    assert (await stepping.load()).generated_tokens == 40
    await stepping.start()
    assert (await stepping.load()).generated_tokens == 0


async def test_a_crash_ends_what_runs_and_a_start_begins_anew(stepping: SimEngine) -> None:
    reader = stepping.generate(chat("Hi", ignore_eos=True, max_tokens=10_000))
    await anext(reader)
    dying = asyncio.ensure_future(stepping.wait_dead())
    await stepping.crash()
    assert await dying == "crashed on demand"
    with pytest.raises(EngineDead):
        [chunk async for chunk in reader]
    with pytest.raises(EngineDead):
        await collect(stepping, chat("Hi"))
    assert await stepping.load() == EngineLoad()
    await stepping.start()
    assert (await answer(stepping, chat("Hi", max_tokens=1)))["usage"]["completion_tokens"] == 1


async def test_a_step_takes_its_time() -> None:
    slow = SimEngine("h100-8b", speed=1.0)
    await slow.start()
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    await collect(slow, chat("Hi", max_tokens=5, ignore_eos=True))
    assert loop.time() - begun_s >= 5 * 0.007
    await slow.close()


@pytest.mark.parametrize(("profile", "speed"), [("z80", 1.0), ("h100-8b", 0.0)])
def test_an_unknown_profile_or_no_speed_is_an_error(profile: str, speed: float) -> None:
    with pytest.raises(SetupError, match="h100-8b"):
        SimEngine(profile, speed=speed)


async def test_it_sleeps_only_when_idle_and_wakes_without_its_cache(stepping: SimEngine) -> None:
    long = "words " * 200
    assert (await answer(stepping, chat(long, prompt_tokens=300)))["usage"]["prompt_tokens_details"][
        "cached_tokens"
    ] == 0
    reader = stepping.generate(chat("Hi", max_tokens=1000, ignore_eos=True))
    await anext(reader)
    with pytest.raises(SleepRefused, match="running"):
        await stepping.sleep()
    await reader.aclose()
    await stepping.sleep()
    waiting = asyncio.ensure_future(answer(stepping, chat(long, prompt_tokens=300)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    await stepping.wake()
    assert (await waiting)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    await stepping.close()
    with pytest.raises(EngineDead):
        await stepping.sleep()
    with pytest.raises(EngineDead):
        await stepping.wake()
