"""The user's body and what is ours in it."""

from dataclasses import replace

import pytest

from protocol.states import Priority
from tests.worker.engine.attempts import chat, completion, embedding
from worker.engine.vllm.body import engine_body, prompt_chars


@pytest.mark.parametrize(("priority", "number"), [(Priority.HIGH, 0), (Priority.MEDIUM, 1), (Priority.LOW, 2)])
def test_priorities_are_numbers_of_which_the_lowest_is_first(priority: Priority, number: int) -> None:
    request = replace(chat("Hi", priority=-9), priority=priority)
    assert engine_body(request, by_priority=True)["priority"] == number
    assert engine_body(request, by_priority=False)["priority"] == 0


def test_tenants_have_salts_of_their_own_which_nobody_can_choose() -> None:
    request = replace(chat("Hi", cache_salt="mine"), tenant="a")
    salts = {engine_body(replace(request, tenant=name), by_priority=True)["cache_salt"] for name in ("a", "b", "")}
    assert len(salts) == 3
    assert {len(salt) for salt in salts} == {32}
    assert "mine" not in salts
    assert engine_body(request, by_priority=True) == engine_body(request, by_priority=True)


def test_all_else_is_untouched() -> None:
    request = chat("Hi", tools=[{"type": "function"}], guided="x", session_id="theirs")
    body = engine_body(request, by_priority=True)
    assert body.pop("session_id") == request.request_id
    assert {name: body[name] for name in ("messages", "tools", "guided", "model")} == {
        name: request.body[name] for name in ("messages", "tools", "guided", "model")
    }
    assert request.body["session_id"] == "theirs"


def test_embeddings_know_no_session_and_nothing_to_gather() -> None:
    body = engine_body(embedding("Hi"), by_priority=True, stream_interval=4)
    assert not {"session_id", "stream_interval"} & body.keys()


def test_tokens_are_gathered_unless_the_user_says_how_many() -> None:
    assert engine_body(chat("Hi"), by_priority=True, stream_interval=4)["stream_interval"] == 4
    assert engine_body(chat("Hi", stream_interval=1), by_priority=True, stream_interval=4)["stream_interval"] == 1
    assert "stream_interval" not in engine_body(chat("Hi"), by_priority=True)


@pytest.mark.parametrize(
    ("body", "chars"),
    [
        (chat("12345").body, len("user12345")),
        (chat("12345", tools=[{}]).body, len("[{}]user12345")),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "12"}, {"type": "image_url"}]}]}, 6),
        ({"messages": [{"role": "assistant", "content": None}]}, 9),
        (completion("12345").body, 5),
        (completion(["123", "4"]).body, 3),
        (completion([1, 2]).body, 0),
        (embedding("123").body, 0),
    ],
)
def test_the_prompts_characters(body: dict[str, object], chars: int) -> None:
    assert prompt_chars(body) == chars
