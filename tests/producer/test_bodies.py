"""Request bodies: what is refused, by which field, and that the prompt is never repeated."""

import time
from typing import Any

import pytest

from producer.bodies import MAX_MESSAGES, check
from protocol import wire
from protocol.errors import InvalidRequest, TooLarge
from protocol.messages import Endpoint

CHAT: Endpoint = "/v1/chat/completions"
COMPLETIONS: Endpoint = "/v1/completions"
EMBEDDINGS: Endpoint = "/v1/embeddings"
LIMIT = 100_000
SECRET = "canary-prompt"
USER = {"role": "user", "content": SECRET}


def chat(**changes: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [USER], **changes}


def refusal(endpoint: Endpoint, body: dict[str, Any]) -> str:
    with pytest.raises(InvalidRequest) as caught:
        check(endpoint, body, LIMIT)
    assert SECRET not in str(caught.value)
    return str(caught.value)


def nested(levels: int) -> Any:
    value: Any = SECRET
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", ""),
        ("model", 3),
        ("messages", []),
        ("messages", None),
        ("messages", SECRET),
        ("messages.0.role", [{"role": SECRET, "content": "x"}]),
        ("messages.0.content", [{"role": "user"}]),
        ("messages.1.content", [USER, {"role": "tool", "content": None}]),
        ("messages.0.content", [{"role": "user", "content": 5}]),
        ("messages.0.content", [{"role": "user", "content": []}]),
        ("messages.0.content.0.type", [{"role": "user", "content": [{"text": SECRET}]}]),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", True),
        ("max_tokens", "8"),
        ("max_tokens", 8.5),
        ("max_completion_tokens", 0),
        ("temperature", -0.1),
        ("temperature", False),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", SECRET),
        ("top_p", 0),
        ("top_p", 1.1),
        ("n", 0),
        ("n", 17),
        ("n", True),
        ("seed", 2**63),
        ("stop", ["x"] * 65),
        ("stop.0", [3]),
        ("logit_bias", {SECRET: "x"}),
        ("logit_bias", {str(n): 1 for n in range(1_025)}),
        ("stream", "yes"),
        ("prompt", "both"),
        ("input", "both"),
    ],
)
def test_a_chat_that_breaks_a_rule_is_refused_by_its_field(field: str, value: Any) -> None:
    assert refusal(CHAT, chat(**{field.partition(".")[0]: value})).startswith(f"{field}: ")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"max_tokens": None, "temperature": 0, "top_p": 1, "n": 16, "stop": "x", "seed": -5},
        {"messages": [{"role": "assistant", "tool_calls": []}, {"role": "tool", "content": "x", "tool_call_id": "1"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y"}}]}]},
        {"messages": [{"role": "developer", "content": "<|im_start|>\u0000\u202e"}]},
        {"messages": [{"role": "user", "content": ""}]},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": 2}}}]},
        {"future_option": {"anything": [1, None, "x"]}},
    ],
)
def test_a_body_within_the_rules_goes_on_untouched(changes: dict[str, Any]) -> None:
    body = chat(**changes)
    assert list(wire.loads(check(CHAT, body, LIMIT).encoded).items()) == list(body.items())


@pytest.mark.parametrize("endpoint", [COMPLETIONS, EMBEDDINGS])
@pytest.mark.parametrize("prompt", ["x", ["x", "y"], [1, 2], [[1], [2, 3]]])
def test_prompts_of_every_kind_are_taken(endpoint: Endpoint, prompt: Any) -> None:
    name = "prompt" if endpoint == COMPLETIONS else "input"
    check(endpoint, {"model": "m", name: prompt}, LIMIT)


@pytest.mark.parametrize(
    "prompt", ["", [], [""], ["x", 1], [1, True], [-1], [[]], [[1], []], [1.5], {}, 5, None, [None]]
)
@pytest.mark.parametrize(("endpoint", "name"), [(COMPLETIONS, "prompt"), (EMBEDDINGS, "input")])
def test_other_prompts_are_refused(endpoint: Endpoint, name: str, prompt: Any) -> None:
    assert refusal(endpoint, {"model": "m", name: prompt}).startswith(name)


def test_each_endpoint_takes_its_own_prompt_alone() -> None:
    assert refusal(COMPLETIONS, {"model": "m", "prompt": SECRET, "messages": [USER]}).startswith("messages: ")
    assert refusal(COMPLETIONS, {"model": "m"}).startswith("prompt: ")
    assert refusal(EMBEDDINGS, {"model": "m", "input": SECRET, "stream": True}).startswith("stream: ")


@pytest.mark.parametrize(
    "value",
    ["\ud83d", 10**5_000, 2**64, object(), {1: 2}, float("inf"), {"deep": float("nan")}, {"x": {"\ud83d": 1}}],
    ids=["surrogate", "endless", "65 bits", "object", "number as key", "infinity", "nan", "surrogate as key"],
)
def test_what_is_no_json_is_refused(value: Any) -> None:
    refusal(CHAT, chat(extra=value))


def test_size_nesting_and_number_of_messages_are_bounded() -> None:
    with pytest.raises(TooLarge):
        check(CHAT, chat(extra="x" * LIMIT), LIMIT)
    with pytest.raises(TooLarge, match=r"^messages: 1001"):
        check(CHAT, chat(messages=[USER] * (MAX_MESSAGES + 1)), LIMIT)
    check(CHAT, chat(messages=[USER] * MAX_MESSAGES), LIMIT)
    assert "nested" in refusal(CHAT, chat(extra=nested(wire.MAX_NESTING)))
    check(CHAT, chat(extra=nested(wire.MAX_NESTING - 1)), LIMIT)
    check(CHAT, chat(extra="[{" * 100), LIMIT)
    refusal(CHAT, chat(extra=nested(5_000)))


def test_equal_bodies_have_equal_digests_whatever_their_order() -> None:
    one = check(CHAT, {"model": "m", "messages": [USER], "n": 1}, LIMIT)
    two = check(CHAT, {"n": 1, "messages": [USER], "model": "m"}, LIMIT)
    assert one.digest == two.digest
    assert one.encoded != two.encoded
    others = [check(CHAT, chat(n=2), LIMIT).digest, check(CHAT, chat(model="x"), LIMIT).digest]
    completion = check(COMPLETIONS, {"model": "m", "prompt": "x"}, LIMIT).digest
    embedding = check(EMBEDDINGS, {"model": "m", "input": "x"}, LIMIT).digest
    assert len({one.digest, *others, completion, embedding}) == 5


BAD = [{"type": "nonsense"}, {"pattern": "("}, {"patternProperties": {"a{2,1}": {}}}]
ONE = [
    *("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "not", "if", "then", "else"),
    *("additionalProperties", "unevaluatedProperties", "propertyNames", "allOf", "anyOf", "oneOf"),
]
NAMED = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("keyword", [*ONE, *NAMED])
def test_each_part_of_a_schema_is_checked(keyword: str, bad: dict[str, Any]) -> None:
    parts: list[Any] = [{"b": ["c"], "a": bad}] if keyword in NAMED else [bad, [{}, bad]]
    for part in parts:
        assert refusal(CHAT, chat(guided_json={keyword: part})).startswith("guided_json: ")


def test_properties_may_have_the_names_of_keywords() -> None:
    check(CHAT, chat(guided_json={"properties": {"type": {"const": 1}, "pattern": {"enum": ["("]}}}), LIMIT)


def test_patterns_of_other_dialects_are_for_an_engine_to_judge() -> None:
    schema = {"items": {"pattern": r"^[\w-\.]+@([\w-]+\.)+[\w-]{2,4}$"}, "patternProperties": {r"(?<y>\d)\k<y>": {}}}
    check(CHAT, chat(guided_json=schema, guided_regex="[^]"), LIMIT)


def test_all_regexes_of_a_body_take_little_time() -> None:
    wide = "(?i)" + "[\x00-\uffff]" * 1_600
    began = time.process_time()
    check(CHAT, chat(guided_json={"anyOf": [{"pattern": wide}] * 3}, guided_regex=wide), LIMIT)
    assert time.process_time() - began < 0.5
    many = {"anyOf": [{"pattern": "x" * 1_024}] * 32}
    check(CHAT, chat(guided_json=many), LIMIT)
    assert "over 32768 characters" in refusal(CHAT, chat(guided_json=many, guided_regex="a"))
