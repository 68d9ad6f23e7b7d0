"""A stream's chunks become the response that would have come without streaming."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.messages import Endpoint
from protocol.wire import JsonObject
from worker.assemble import assemble, merge_chunks

CHAT: Endpoint = "/v1/chat/completions"
HEAD = {"id": "x", "created": 7, "model": "m", "system_fingerprint": "fp"}
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
LAST = {**HEAD, "object": "chat.completion.chunk", "choices": [], "usage": USAGE}


def delta(content: str | None = None, index: int = 0, end: str | None = None, **more: Any) -> JsonObject:
    said = {**({} if content is None else {"content": content}), **more}
    choice = {"index": index, "delta": said, "logprobs": None, "finish_reason": end}
    return {**HEAD, "object": "chat.completion.chunk", "choices": [choice], "usage": None}


def text(piece: str, index: int = 0, end: str | None = None, logprobs: Any = None) -> JsonObject:
    choice = {"index": index, "text": piece, "logprobs": logprobs, "finish_reason": end}
    return {**HEAD, "object": "text_completion", "choices": [choice]}


def message_of(*chunks: JsonObject) -> Any:
    (choice,) = assemble(CHAT, chunks)["choices"]
    return choice["message"]


def test_a_chat_answer() -> None:
    chunks = [delta("", role="assistant"), delta("Hel"), delta("lo"), delta(end="stop"), LAST]
    assert assemble(CHAT, chunks) == {
        **HEAD,
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello"},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
    }


def test_tool_calls_merge_by_index_and_leave_content_null() -> None:
    def piece(index: int, **call: Any) -> JsonObject:
        return delta(tool_calls=[{"index": index, **call}])

    message = message_of(
        delta(role="assistant", content=None),
        piece(0, id="c0", type="function", function={"name": "f", "arguments": ""}),
        piece(0, function={"arguments": '{"a"'}),
        piece(1, id="c1", type="function", function={"name": "g", "arguments": "{}"}),
        piece(0, id="c0", type="function", function={"arguments": ":1}"}),
        delta(end="tool_calls"),
    )
    assert message == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
            {"id": "c1", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([delta(refusal="I "), delta(refusal="can't")], {"content": None, "refusal": "I can't"}),
        (
            [delta(reasoning_content="hm"), delta(reasoning_content="m"), delta("yes")],
            {"content": "yes", "reasoning_content": "hmm"},
        ),
        (
            [delta(function_call={"name": "f", "arguments": "{"}), delta(function_call={"arguments": "}"})],
            {"content": None, "function_call": {"name": "f", "arguments": "{}"}},
        ),
        ([delta(end="stop")], {"content": ""}),
    ],
)
def test_what_else_a_message_holds(chunks: list[JsonObject], expected: JsonObject) -> None:
    assert message_of(*chunks) == {"role": "assistant", **expected}


def test_choices_that_alternate_stay_apart_and_in_order() -> None:
    choices = assemble(CHAT, [delta("b", 1), delta("a", 0), delta("b", 1, end="stop"), delta(end="length")])["choices"]
    assert [(c["index"], c["message"]["content"], c["finish_reason"]) for c in choices] == [
        (0, "a", "length"),
        (1, "bb", "stop"),
    ]


def test_log_probabilities_line_up() -> None:
    chunks = [delta("a"), delta("b")]
    for chunk in chunks:
        (choice,) = chunk["choices"]
        choice["logprobs"] = {"content": [{"token": choice["delta"]["content"]}], "refusal": None}
    (choice,) = assemble(CHAT, chunks)["choices"]
    assert choice["logprobs"] == {"content": [{"token": "a"}, {"token": "b"}], "refusal": None}


def test_a_completion() -> None:
    chunks = [
        text("a", logprobs={"tokens": ["a"], "token_logprobs": [-1.0]}),
        text("b", logprobs={"tokens": ["b"], "token_logprobs": [-2.0]}),
        {**text("", end="length"), "usage": USAGE},
    ]
    full = assemble("/v1/completions", chunks)
    assert full["object"] == "text_completion"
    assert full["choices"] == [
        {
            "index": 0,
            "text": "ab",
            "logprobs": {"tokens": ["a", "b"], "token_logprobs": [-1.0, -2.0]},
            "finish_reason": "length",
        }
    ]
    assert full["usage"] == USAGE


def test_embeddings_pass_through() -> None:
    full = {"object": "list", "data": []}
    assert assemble("/v1/embeddings", [full]) is full


def test_neighbouring_texts_become_one_chunk() -> None:
    chunks = [delta("", role="assistant"), delta("a"), delta("b"), delta("c"), delta(end="stop"), LAST]
    assert merge_chunks(chunks) == [chunks[0], delta("abc"), delta(end="stop"), LAST]
    assert chunks[1] == delta("a")
    assert merge_chunks([text("a"), text("b")]) == [text("ab")]
    thoughts = [delta(reasoning_content="a"), delta(reasoning_content="b"), delta("c")]
    assert merge_chunks(thoughts) == [delta(reasoning_content="ab"), delta("c")]


@pytest.mark.parametrize(
    "chunks",
    [
        [delta("a"), delta("b", 1)],
        [delta("a"), delta("b", end="stop")],
        [delta("a"), {**delta("b"), "usage": USAGE}],
        [delta("a"), delta("b", tool_calls=[{"index": 0}])],
        [delta("a"), {**delta("b"), "id": "y"}],
        [text("a"), text("b", logprobs={"tokens": ["b"]})],
        [delta("a"), delta("b", reasoning_content="c")],
    ],
)
def test_what_differs_stays_apart(chunks: list[JsonObject]) -> None:
    assert merge_chunks(chunks) == chunks


PIECES = st.lists(
    st.one_of(
        st.builds(delta, st.text(max_size=3), st.integers(0, 1)),
        st.builds(lambda end, index: delta(end=end, index=index), st.sampled_from(["stop"]), st.integers(0, 1)),
        st.builds(lambda part: delta(tool_calls=[{"index": 0, "function": {"arguments": part}}]), st.text(max_size=2)),
        st.just(LAST),
    ),
    min_size=1,
    max_size=12,
)


@given(PIECES)
def test_merging_changes_nothing_of_the_response(chunks: list[JsonObject]) -> None:
    assert assemble(CHAT, merge_chunks(chunks)) == assemble(CHAT, chunks)
