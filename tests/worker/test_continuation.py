"""The rule by which a job goes on or starts over, as the table in docs/reliability.md has it."""

from typing import Any

import pytest

from protocol.wire import JsonObject
from worker.continuation import (
    NotContinuable,
    Partial,
    continuation,
    continuation_by_tokens,
    read_partial,
    rest_of_budget,
)

SAID = "Once upon"


def chat(**more: Any) -> JsonObject:
    return {"model": "m", "messages": [{"role": "user", "content": "Tell"}], **more}


def completion(**more: Any) -> JsonObject:
    return {"model": "m", "prompt": "Tell: ", "max_tokens": 9, **more}


def goes_on(body: JsonObject, text: str = SAID, *, chats: bool = True) -> JsonObject | NotContinuable:
    return continuation("/v1/completions" if "prompt" in body else "/v1/chat/completions", body, text, chats=chats)


def why_not(body: JsonObject, text: str = SAID, *, chats: bool = True) -> str:
    found = goes_on(body, text, chats=chats)
    assert isinstance(found, NotContinuable), found
    return found.reason


def test_a_completion_goes_on_with_prompt_and_text() -> None:
    assert goes_on(completion(temperature=1)) == completion(temperature=1, prompt="Tell: Once upon")
    assert goes_on(completion(prompt=["Tell: "])) == completion(prompt="Tell: Once upon")


def test_a_chat_goes_on_with_the_assistants_message() -> None:
    begun = {"role": "assistant", "content": SAID}
    flags = {"add_generation_prompt": False, "continue_final_message": True}
    assert goes_on(chat()) == chat(messages=[*chat()["messages"], begun], **flags)


def test_a_message_that_the_user_began_goes_on() -> None:
    mine = chat(messages=[{"role": "assistant", "content": "Well: "}], continue_final_message=True)
    for asked in (mine, {**mine, "add_generation_prompt": False}):
        found = goes_on(asked)
        assert isinstance(found, dict)
        assert found["messages"] == [{"role": "assistant", "content": "Well: Once upon"}]
        assert found["add_generation_prompt"] is False
    assert "add_generation_prompt" in why_not(chat(add_generation_prompt=False))


@pytest.mark.parametrize("body", [chat(), completion(), completion(max_tokens=None)])
def test_where_nothing_was_said_the_body_stays(body: JsonObject) -> None:
    assert goes_on(body, "", chats=False) == body


@pytest.mark.parametrize(
    "more",
    [
        {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.1},
        {"stop": ["\n\n"], "stop_token_ids": [2], "ignore_eos": True, "min_tokens": 3},
        {"n": 1, "logprobs": None, "top_logprobs": 0, "tools": None, "user": "u", "metadata": {"a": "b"}},
        {"frequency_penalty": 0, "presence_penalty": 0.0, "repetition_penalty": 1.1, "logit_bias": {"5": 1}},
        {"seed": 7, "temperature": 0},
        {"return_token_ids": False, "skip_special_tokens": True},
        {"stream": True, "stream_options": {"include_usage": True}, "response_format": {"type": "text"}},
    ],
)
def test_members_that_mean_the_same_for_the_rest(more: JsonObject) -> None:
    assert isinstance(goes_on(chat(**more)), dict)
    assert isinstance(goes_on(completion(**more)), dict)


@pytest.mark.parametrize(
    "more",
    [
        {"n": 2},
        {"best_of": 2},
        {"n": True},
        {"echo": True},
        {"suffix": "end"},
        {"logprobs": 0},
        {"logprobs": True},
        {"top_logprobs": 3},
        {"seed": 7},
        {"seed": 7, "temperature": 0.5},
        {"frequency_penalty": 0.1},
        {"presence_penalty": -1},
        {"tools": [{"type": "function"}]},
        {"tool_choice": "required"},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        {"structured_outputs": {"json": {}}},
        {"guided_regex": "a+"},
        {"bad_words": ["x"]},
        {"return_token_ids": True},
        {"skip_special_tokens": False},
        {"prompt_logprobs": 1},
        {"something_new": 1},
    ],
)
def test_members_that_make_a_job_start_over(more: JsonObject) -> None:
    named = next(name for name in more if name != "temperature")
    assert named in why_not(chat(**more))
    assert named in why_not(completion(**more))


def test_reasons_never_quote_a_member_of_unknown_shape() -> None:
    assert why_not(chat(**{"my secret: \n": 1})) == "its body has unknown members"


@pytest.mark.parametrize(
    ("body", "text", "why"),
    [
        (completion(prompt=["a", "b"]), SAID, "one text"),
        (completion(prompt=[1, 2]), SAID, "one text"),
        (completion(max_tokens=None), SAID, "max_tokens"),
        (chat(messages=[{"role": "user", "content": [{"type": "image_url"}]}]), SAID, "more than text"),
        (chat(messages=[{"role": "assistant", "content": "a"}]), SAID, "assistant's message"),
        (chat(messages=[{"role": "assistant", "content": None}], continue_final_message=True), SAID, "assistant's"),
        (chat(), "Once \n", "white space"),
        (chat(), "Once \ufffd", "within a character"),
        (chat(stop="END"), "The E", "stop string"),
        (chat(stop="END", include_stop_str_in_output=True), "The END", "stop string"),
        (completion(stop=["x", "\n\nQ:"]), "The\n\n", "stop string"),
    ],
)
def test_places_and_prompts_that_make_a_job_start_over(body: JsonObject, text: str, why: str) -> None:
    assert why in why_not(body, text)


def test_a_text_within_which_no_stop_string_can_begin_goes_on() -> None:
    assert isinstance(goes_on(chat(stop=["END", "x"]), "The En"), dict)
    assert isinstance(goes_on(completion(stop="END"), "The "), dict)


def test_text_parts_of_a_message_are_text() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "tool", "content": None}]
    assert isinstance(goes_on(chat(messages=parts)), dict)


def test_a_chat_needs_an_engine_that_is_known_to_go_on() -> None:
    assert "not known" in why_not(chat(), chats=False)
    assert isinstance(goes_on(completion(), chats=False), dict)


def test_embeddings_start_over() -> None:
    found = continuation("/v1/embeddings", {"model": "m", "input": "a"}, "", chats=True)
    assert isinstance(found, NotContinuable)


@pytest.mark.parametrize(
    ("limits", "tokens", "rest"),
    [
        ({}, 5, {}),
        ({"max_tokens": 9}, 5, {"max_tokens": 4}),
        ({"max_tokens": None, "max_completion_tokens": 9}, 5, {"max_tokens": None, "max_completion_tokens": 4}),
        ({"max_tokens": 9, "min_tokens": 3}, 5, {"max_tokens": 4, "min_tokens": 0}),
        ({"max_tokens": 9, "min_tokens": 8}, 5, {"max_tokens": 4, "min_tokens": 3}),
        ({"max_tokens": 9}, 9, None),
        ({"max_tokens": 90, "max_completion_tokens": 9}, 12, None),
    ],
)
def test_limits_lose_what_was_said(limits: JsonObject, tokens: int, rest: JsonObject | None) -> None:
    assert rest_of_budget(limits, tokens) == rest


def delta(**said: Any) -> JsonObject:
    return {"choices": [{"index": 0, "delta": said}]}


def test_chunks_are_read_as_text() -> None:
    assert read_partial([]) == Partial("")
    chunks = [delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo", tool_calls=[])]
    assert read_partial(chunks) == Partial("Hello")
    assert read_partial([*chunks, {"choices": [{"index": 0, "delta": None}]}]) == Partial("Hello")
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    assert read_partial([*chunks, end, {"choices": [], "usage": {}}]) == Partial("Hello", ended=True)
    assert read_partial([{"choices": [{"text": "a"}]}, {"choices": [{"text": "b", "index": 0}]}]) == Partial("ab")


@pytest.mark.parametrize(
    "chunk",
    [
        delta(reasoning_content="hm"),
        delta(tool_calls=[{"index": 0}]),
        delta(refusal="no"),
        {"choices": [{"index": 1, "delta": {"content": "a"}}]},
        {"choices": [{"index": 0, "text": "a", "logprobs": {"tokens": ["a"]}}]},
        delta(content=[{"type": "text", "text": "a"}]),
        {"choices": [{"index": 0, "text": 5}]},
    ],
)
def test_chunks_that_say_more_than_text_make_a_job_start_over(chunk: JsonObject) -> None:
    assert isinstance(read_partial([chunk]), NotContinuable)


PROMPT, TOKENS = [1, 2], [8, 9]


def in_tokens(body: JsonObject, text: str = SAID) -> JsonObject | NotContinuable:
    return continuation_by_tokens(body, text, PROMPT, TOKENS)


def test_in_tokens_chats_and_completions_are_one() -> None:
    wanted = {"model": "m", "prompt": [1, 2, 8, 9], "max_tokens": 7, "temperature": 0}
    assert in_tokens(completion(max_tokens=7, temperature=0)) == wanted
    assert in_tokens(chat(max_completion_tokens=7, temperature=0, chat_template_kwargs={"a": 1}, tools=[])) == wanted
    assert in_tokens(chat(max_tokens=9, max_completion_tokens=7, temperature=0, metadata={"a": "b"})) == wanted
    # A number in completions, and no switch.
    assert in_tokens(chat(max_tokens=7, temperature=0, logprobs=False)) == wanted


def test_in_tokens_white_space_and_prompts_of_tokens_are_no_matter() -> None:
    assert isinstance(in_tokens(chat(max_tokens=7), "Once \n"), dict)
    assert isinstance(in_tokens(completion(prompt=[1, 2])), dict)
    mine = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert isinstance(in_tokens(chat(max_tokens=7, messages=mine)), dict)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (chat(), SAID),
        (chat(max_tokens=7, n=2), SAID),
        (chat(max_tokens=7, seed=1), SAID),
        (chat(max_tokens=7, stop="ponds"), "Once upon"),
        (chat(max_tokens=7), "Once \ufffd"),
        (chat(max_tokens=7, messages=[{"role": "user", "content": [{"type": "image_url"}]}]), SAID),
    ],
)
def test_in_tokens_the_rest_of_the_table_is_the_same(body: JsonObject, text: str) -> None:
    assert isinstance(in_tokens(body, text), NotContinuable)
