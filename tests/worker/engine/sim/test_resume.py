"""The simulated engine goes on with a text that it began, as a real one does: by what stands in the body."""

import pytest

from protocol.wire import JsonObject
from tests.worker.engine.attempts import chat, collect, completion
from tests.worker.engine.sim.test_engine import FAST
from worker.assemble import assemble
from worker.engine.base import EngineRequest
from worker.engine.sim.engine import SimEngine
from worker.engine.sim.resume import begun


async def text_of(wanted: EngineRequest, profile: str = "h100-8b") -> tuple[str, JsonObject]:
    engine = SimEngine(profile, speed=FAST)
    await engine.start()
    try:
        full = assemble(wanted.endpoint, await collect(engine, wanted))
    finally:
        await engine.close()
    choice = full["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"], choice


def begun_chat(text: str) -> EngineRequest:
    messages = [*chat("Hi").body["messages"], {"role": "assistant", "content": text}]
    return chat("Hi", messages=messages, continue_final_message=True, add_generation_prompt=False)


@pytest.mark.parametrize("profile", ["h100-8b", "instant"])
async def test_a_chat_and_a_completion_go_on_where_they_were_cut(profile: str) -> None:
    whole, _ = await text_of(chat("Hi"))
    words = whole.split(" ")
    for count in (1, 7, len(words) - 1, len(words)):
        cut = " ".join(words[:count])
        rest, choice = await text_of(begun_chat(cut), profile)
        assert cut + rest == whole
        assert choice["finish_reason"] == "stop"
    whole, _ = await text_of(completion("Tell: Amber tales. ", max_tokens=14))
    cut = " ".join(whole.split(" ")[:5])
    rest, choice = await text_of(completion("Tell: Amber tales. " + cut, max_tokens=9), profile)
    assert cut + rest == whole
    assert choice["finish_reason"] == "length"


async def test_another_text_is_a_prompt_of_its_own() -> None:
    whole, _ = await text_of(chat("Hi"))
    answer, _ = await text_of(begun_chat("I never said that."))
    assert answer
    assert not whole.endswith(answer)
    messages = [*chat("Hi").body["messages"], {"role": "assistant", "content": whole}]
    assert begun("/v1/chat/completions", {}, messages).position == 0
    assert begun("/v1/completions", {}, "A walk in the Amber valley.").position == 0
    assert begun("/v1/completions", {}, [1, 2]).position == 0
