"""Engines that answer anything: a bounded, typed error each, and what they said before is kept and marked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol import frames, wire
from protocol.errors import InvalidJson, SetupError
from protocol.messages import Outcome, chunk_text
from protocol.settings import Settings
from protocol.states import State
from protocol.wire import JsonObject
from tests.input.values import CANARY, nested, values
from tests.support.builders import SPEC
from tests.support.fuzz import examples
from tests.worker.engine.attempts import chat, collect, embedding
from tests.worker.stage import FAST, staged
from worker.assemble import merge_chunks
from worker.engine import openai_http
from worker.engine.base import EngineError, EngineFault, EngineRefused
from worker.engine.openai import OpenAIEngine
from worker.engine.openai_rules import capacity_of, error_of_status, read_chunk, retry_after_s, speaks
from worker.engine.options import EngineOptions
from worker.engine.sse import SseError, SseParser
from worker.engine.vllm.bodies import BodyLimits, check_body
from worker.engine.vllm.facts import facts_of
from worker.transcript import Transcript

EVENT_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
JSON_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
SAID = b'data: {"choices":[{"index":0,"delta":{"content":"canary-prompt"}}]}\n\n'
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def serving(answer: bytes, heads: list[bytes] | None = None) -> AsyncIterator[OpenAIEngine]:
    """An engine whose server sends these bytes whatever it is asked, and closes; `heads` gets what it was sent."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if heads is not None:
                heads.append(head)
            writer.write(answer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(play, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    engine = OpenAIEngine(EngineOptions(attach=f"http://localhost:{port}", stall_s=5))
    try:
        yield engine
    finally:
        await engine.close()
        server.close()


async def heard(answer: bytes) -> list[JsonObject]:
    """The chunks that come through; an error must be an engine's, and quote nothing."""
    chunks: list[JsonObject] = []
    said = ""
    async with serving(answer) as engine, asyncio.timeout(20):
        try:
            chunks.extend([chunk async for chunk in engine.generate(chat(CANARY))])
        except EngineError as error:
            said = str(error)
    assert CANARY not in said
    return chunks


@examples(25)
@example(EVENT_STREAM + SAID + b"data: \xff\n\n")
@example(EVENT_STREAM + SAID)
@given(
    st.builds(
        lambda head, pieces: head + b"".join(pieces),
        st.sampled_from([EVENT_STREAM, JSON_ANSWER, b"", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 500 \r\n\r\n"]),
        st.lists(st.binary(max_size=20) | st.just(SAID) | st.just(b"data: [DONE]\n\n"), max_size=6),
    )
)
def test_any_bytes_are_chunks_or_an_error(answer: bytes) -> None:
    for chunk in asyncio.run(heard(answer)):
        wire.dumps(chunk)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (EVENT_STREAM + SAID, "broke off"),
        (EVENT_STREAM + SAID + b"data: {", "broke off"),
        (EVENT_STREAM + SAID + b"data: {\n\n", "no JSON object"),
        (EVENT_STREAM + SAID + b"data: \xff\n\n", "not UTF-8"),
        (EVENT_STREAM + b"data: " + b"x" * 9_000_000, "a line of more than"),
        (EVENT_STREAM + b"data: xxxxxxx\n" * 1_300_000, "an event of more than"),
        (EVENT_STREAM + SAID * 30_000, "too long"),
        (EVENT_STREAM + b'data: {"choices":[{"index":-1}]}\n\n', "no chunk"),
        (EVENT_STREAM + b'data: {"choices":[{"index":"0"}]}\n\n', "no chunk"),
        (EVENT_STREAM + b'data: {"choices":[{"delta":[]}]}\n\n', "no chunk"),
        (EVENT_STREAM + b'data: {"choices":[{"delta":{"tool_calls":[1]}}]}\n\n', "no chunk"),
        (EVENT_STREAM + b'data: {"choices":[{"delta":{"tool_calls":[{"index":[]}]}}]}\n\n', "no chunk"),
        (EVENT_STREAM + b'data: {"choices":[],"usage":{"prompt_tokens":-5}}\n\n', "usage figures"),
        (EVENT_STREAM + b'data: {"choices":[],"usage":[1]}\n\n', "usage figures"),
        (EVENT_STREAM + b'data: {"choices":[],"x":' + b"[" * 300 + b"]" * 300 + b"}\n\n", "no JSON object"),
        (JSON_ANSWER + b'{"choices":[]}', "something else than a stream"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: \x00\r\n\r\n", "the connection to the engine broke"),
        (b"not HTTP\r\n\r\n", "the connection to the engine broke"),
    ],
)
async def test_a_bad_stream_is_a_fault_that_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, says: str
) -> None:
    if says == "too long":
        monkeypatch.setattr(openai_http, "MAX_STREAM_BYTES", 1_000_000)
    async with serving(answer) as engine:
        with pytest.raises(EngineError, match=says) as told:
            await collect(engine, chat(CANARY))
    assert CANARY not in str(told.value)


async def test_cookies_are_neither_sent_on_nor_quoted(caplog: pytest.LogCaptureFixture) -> None:
    cookies = b"\r\nSet-Cookie: a=canary-prompt\r\nSet-Cookie: canary-prompt[]=x\r\n\r\n"
    heads: list[bytes] = []
    async with serving(EVENT_STREAM[:-4] + cookies + SAID + b"data: [DONE]\n\n", heads) as engine:
        for _ in range(2):
            assert await collect(engine, chat(CANARY))
    assert len(heads) == 2
    assert not any(b"cookie" in head.lower() for head in heads)
    assert CANARY not in caplog.text


@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"data":5}', b'{"data":[],"usage":{"total_tokens":-1}}', b"\xff"])
async def test_bad_embeddings_are_a_fault(content: bytes) -> None:
    async with serving(JSON_ANSWER + content) as engine:
        with pytest.raises(EngineError):
            await collect(engine, embedding(CANARY))


deltas = st.dictionaries(st.sampled_from(["content", "tool_calls", "role"]), values, max_size=2)
choices = st.dictionaries(st.sampled_from(["index", "delta", "text", "finish_reason"]), values | deltas, max_size=3)
usages = st.dictionaries(st.sampled_from(["prompt_tokens", "total_tokens"]), values, max_size=1)
chunks = st.builds(
    lambda spoken, more: {"choices": spoken, **more},
    st.lists(choices, max_size=2) | values,
    st.dictionaries(st.sampled_from(["usage", "id", "error", "choices"]), values | usages, max_size=1),
)


@examples(100)
@example([{"choices": [{"delta": None, "text": "x"}]}])
@example([{"choices": [{"index": 0, "delta": {"content": nested(70)}}]}])
@given(st.lists(chunks, max_size=4))
def test_chunks_that_are_taken_can_be_told_on(sent: list[Any]) -> None:
    transcript, taken = Transcript("/v1/chat/completions"), []
    for value in sent:
        try:
            chunk = read_chunk(wire.canonical(value))
        except (EngineError, InvalidJson):
            continue
        speaks(chunk)
        chunk_text(chunk)
        transcript.add(chunk)
        taken.append(chunk)
    wire.dumps(merge_chunks(taken))
    outcome = Outcome(state=State.COMPLETED, body=transcript.partial())
    assert Outcome.model_validate_json(outcome.model_dump_json()) == outcome
    assert isinstance(outcome.text, str)
    assert isinstance(outcome.usage, dict)


@examples(80)
@given(st.dictionaries(st.sampled_from(["choices", "usage"]), st.lists(choices, max_size=2) | values))
def test_a_stored_outcome_of_any_shape_has_a_text_and_figures(body: dict[str, Any]) -> None:
    outcome = Outcome(state=State.COMPLETED, body=body)
    assert isinstance(outcome.text, str)
    assert isinstance(outcome.usage, dict)


@examples(80)
@given(st.lists(st.binary(max_size=30) | st.sampled_from([b"data: ", b"\n", b"\r", b"\r\n"]), max_size=8))
def test_a_parser_holds_no_more_than_its_limit(pieces: list[bytes]) -> None:
    parser = SseParser(max_line_bytes=40)
    events: list[bytes] = []
    try:
        for piece in pieces:
            events += parser.feed(piece)
    except SseError as error:
        assert "40" in str(error)  # noqa: PT017 - not each example fails
    assert all(len(event) <= 40 for event in events)


@examples(80)
@given(st.integers(100, 599), st.binary(max_size=20), st.dictionaries(st.just("Retry-After"), st.text(max_size=12)))
def test_any_status_is_an_engines_error(status: int, content: bytes, headers: dict[str, str]) -> None:
    error = error_of_status(status, content, retry_after_s(headers.get("Retry-After", ""), NOW))
    if isinstance(error, EngineRefused):
        wire.dumps(error.body)


@examples(100)
@example("Mon, 99 Feb 99999 99:99:99 GMT")
@example("Mon, 01 Jan 99999999999999 00:00:00 GMT")
@given(st.text(max_size=20))
def test_any_retry_header_is_a_bounded_wait(header: str) -> None:
    assert 0 <= retry_after_s(header, NOW) <= 300


told = st.dictionaries(st.sampled_from(["id", "meta", "max_model_len", "n_ctx"]), values, max_size=2)
objects = st.dictionaries(
    st.sampled_from(["data", "default_generation_settings", "total_slots", "scheduler_config", "model_config"]),
    values | st.lists(told, max_size=2) | told,
    max_size=2,
)


@examples(60)
@given(objects, objects)
def test_any_facts_about_an_engine_are_taken_or_passed_over(models: JsonObject, more: JsonObject) -> None:
    options = EngineOptions(attach="http://x", model="m")
    capacity_of(options, models, more)
    with suppress(SetupError):
        facts_of(options, models, {"vllm_config": more}, [])


MEMBERS = [
    *("prompt", "messages", "input", "logit_bias", "stop", "stop_token_ids", "allowed_token_ids", "seed", "top_k"),
    *("response_format", "structured_outputs", "guided_json", "guided_regex", "tools", "tool_choice", "bad_words"),
    *("chat_template_kwargs", "cache_salt", "priority", "truncate_prompt_tokens"),
]


@examples(80)
@given(st.dictionaries(st.sampled_from(MEMBERS), values, max_size=4))
def test_any_stored_body_passes_or_is_refused(body: JsonObject) -> None:
    said = ""
    try:
        check_body("/v1/completions", body, BodyLimits(vocabulary=1_000, context_tokens=100))
    except EngineRefused as refusal:
        assert refusal.status_code == 400  # noqa: PT017 - not each example fails
        said = str(refusal.body)
    assert CANARY not in said


def test_a_stored_body_with_media_at_a_private_address_is_refused() -> None:
    part = {"type": "image_url", "image_url": {"url": f"file:///{CANARY}"}}
    with pytest.raises(EngineRefused) as refused:
        check_body("/v1/chat/completions", {"messages": [{"role": "user", "content": [part]}]}, BodyLimits())
    assert "messages.0.content.0.image_url" in str(refused.value.body)
    assert CANARY not in str(refused.value.body)


@pytest.mark.parametrize("payload", [b"[1]", b'["x"]', b"{}", b'{"seal":"x"}', b"5", b"null", b"\xff", b""])
def test_a_frame_of_another_type_is_refused(payload: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, InvalidJson)):
        frames.decode(b"1-1", payload)


@pytest.mark.parametrize("stream", [True, False])
async def test_what_came_before_a_failure_is_kept_and_marked(valkey_url: str, stream: bool) -> None:
    settings: Settings = FAST.model_copy(update={"max_tries": 1})
    async with staged(valkey_url, settings=settings) as stage:
        handle, flight = await stage.begin(spec=SPEC.model_copy(update={"stream": stream}))
        flight.say("Hello ", "wor")
        flight.fail(EngineFault("the engine's stream broke off"))
        await stage.reaches(handle, State.FAILED)
        outcome = stage.outcome(handle)
        assert outcome.error
        assert (outcome.error.code, outcome.status_code, outcome.text) == ("engine_error", None, "Hello wor")
        assert outcome.body
        assert outcome.body["choices"][0]["finish_reason"] is None
        assert stage.log_text(handle) == ("Hello wor" if stream else "")
