"""What a server's messages mean: table tests."""

from datetime import UTC, datetime

import pytest

from protocol.messages import Endpoint
from protocol.wire import JsonObject
from worker.engine.base import Capacity, EngineBusy, EngineError, EngineFault, EngineRefused
from worker.engine.openai_rules import (
    capacity_of,
    check_biases,
    error_of_event,
    error_of_status,
    read_chunk,
    retry_after_s,
    upstream_body,
    vocabulary_of,
)
from worker.engine.options import EngineOptions

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CHAT: Endpoint = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, EngineRefused),
        (404, EngineRefused),
        (408, EngineFault),
        (413, EngineRefused),
        (429, EngineBusy),
        (302, EngineFault),
        (500, EngineFault),
        (501, EngineRefused),
        (503, EngineBusy),
    ],
)
def test_what_a_status_means(status: int, kind: type[EngineError]) -> None:
    assert type(error_of_status(status, b"")) is kind


def test_a_refusal_keeps_the_engines_words_or_gets_some() -> None:
    own = error_of_status(400, b'{"error":{"message":"no"}}')
    assert isinstance(own, EngineRefused)
    assert own.body == {"error": {"message": "no"}}
    made = error_of_status(400, b"<html>")
    assert isinstance(made, EngineRefused)
    assert made.body["error"]["code"] == "engine_refused"


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("1e9", 300.0),
        ("nan", 1.0),
        ("", 1.0),
        ("soon", 1.0),
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30.0),
    ],
)
def test_how_long_to_wait(header: str, wait_s: float) -> None:
    assert retry_after_s(header, NOW) == wait_s


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"choices": []}, type(None)),
        ({"error": {"message": "engine died", "code": 500}}, EngineFault),
        ({"error": "died"}, EngineFault),
        ({"error": {"code": "context_length_exceeded"}}, EngineFault),
        ({"error": {"message": "too long", "code": 400}}, EngineRefused),
        ({"error": {"code": 429}}, EngineBusy),
    ],
)
def test_what_an_error_event_means(event: JsonObject, kind: type[object]) -> None:
    assert type(error_of_event(event)) is kind


@pytest.mark.parametrize(
    "data",
    [
        "",
        "\udcff",
        "nonsense",
        "[]",
        "7",
        '{"object":"x"}',
        '{"choices":{}}',
        '{"choices":[NaN]}',
        '{"choices":[7]}',
        '{"choices":[{"delta":"x"}]}',
    ],
)
def test_garbage_is_a_fault(data: str) -> None:
    with pytest.raises(EngineFault):
        read_chunk(data.encode(errors="surrogateescape"))


def test_only_streaming_and_usage_are_added_to_a_body() -> None:
    body = {"messages": [], "stream": False, "stream_options": {"include_usage": False, "other": 1}, "x": 2}
    sent = upstream_body(CHAT, body)
    assert sent == {**body, "stream": True, "stream_options": {"include_usage": True, "other": 1}}
    assert body["stream"] is False
    assert upstream_body("/v1/embeddings", body) is body
    assert upstream_body(CHAT, {"stream_options": None})["stream_options"] == {"include_usage": True}


VLLM = {"data": [{"id": "a", "max_model_len": 10}, {"id": "b", "max_model_len": 20}]}
LLAMA = {"data": [{"id": "a", "meta": {"n_ctx": 2048}}]}
PROPS = {"default_generation_settings": {"n_ctx": 2048}, "total_slots": 4}


@pytest.mark.parametrize(
    ("options", "models", "props", "capacity"),
    [
        (EngineOptions(), {}, {}, Capacity(16)),
        (EngineOptions(model="b", slots=8), VLLM, {}, Capacity(8, 20)),
        (EngineOptions(model="other"), VLLM, {}, Capacity(16, 10)),
        (EngineOptions(), LLAMA, PROPS, Capacity(4, 2048, 8192)),
        (EngineOptions(slots=2, context_tokens=5, kv_tokens=9), LLAMA, PROPS, Capacity(2, 5, 9)),
        (EngineOptions(), {"data": [None]}, {"total_slots": "x"}, Capacity(16)),
        (EngineOptions(), {"data": [{"id": "a", "owned_by": "vllm"}]}, {}, Capacity(16, continues_chats=True)),
        (EngineOptions(), {"data": [{"id": "a", "owned_by": "organization"}]}, {}, Capacity(16)),
    ],
)
def test_what_an_engine_holds(
    options: EngineOptions, models: JsonObject, props: JsonObject, capacity: Capacity
) -> None:
    assert capacity_of(options, models, props) == capacity


def test_llama_cpp_tells_its_vocabulary() -> None:
    assert vocabulary_of({"data": [{"id": "m", "meta": {"n_vocab": 49_152}}]}) == 49_152
    for silent in ({}, {"data": None}, {"data": [{"id": "m"}, 3]}, {"data": [{"meta": {"n_vocab": "many"}}]}):
        assert vocabulary_of(silent) == 0


@pytest.mark.parametrize("token", ["49152", "999999999", "9" * 5_000])
def test_a_bias_of_a_token_that_there_is_not_is_refused(token: str) -> None:
    with pytest.raises(EngineRefused) as refusal:
        check_biases({"logit_bias": {"7": 1, token: 1}}, 49_152)
    assert refusal.value.status_code == 400
    assert "logit_bias" in refusal.value.body["error"]["message"]
    assert token not in refusal.value.body["error"]["message"]


@pytest.mark.parametrize("biases", [None, {}, {"0": 1, "49151": -1}, {"a word": 1}, [[7, 1]]])
def test_other_biases_are_the_servers_to_judge(biases: object) -> None:
    check_biases({"logit_bias": biases}, 49_152)
    check_biases({"logit_bias": {"999999999": 1}}, 0)
