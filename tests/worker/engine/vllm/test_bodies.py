"""Bodies that have killed some version of vLLM are refused; what they resemble passes."""

from typing import Any

import pytest

from protocol.messages import Endpoint
from protocol.wire import JsonObject, dumps, loads
from worker.engine.base import EngineRefused
from worker.engine.vllm.bodies import BodyLimits, check_body

LIMITS = BodyLimits(vocabulary=1_000, context_tokens=64)
OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
CHAT: Endpoint = "/v1/chat/completions"
SECRET = "a-secret-of-the-user"


def check(endpoint: Endpoint = CHAT, limits: BodyLimits = LIMITS, **members: Any) -> None:
    messages = {"messages": [{"role": "user", "content": SECRET}]} if endpoint == CHAT else {}
    body: JsonObject = {"model": "m", **messages, **members}
    check_body(endpoint, loads(dumps(body)), limits)


def refused(endpoint: Endpoint = CHAT, limits: BodyLimits = LIMITS, **members: Any) -> JsonObject:
    with pytest.raises(EngineRefused) as caught:
        check(endpoint, limits, **members)
    assert caught.value.status_code == 400
    error: JsonObject = caught.value.body["error"]
    assert error["type"] == "invalid_request_error"
    assert SECRET not in error["message"]
    return error


def shaped(schema: Any) -> JsonObject:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


@pytest.mark.parametrize(
    "members",
    [
        {"logit_bias": {"1000": 1}},
        {"logit_bias": {"999999999": 1}},
        {"logit_bias": {"-1": 1}},
        {"logit_bias": {"1.5": 1}},
        {"logit_bias": {SECRET: 1}},
        {"logit_bias": {"9" * 5_000: 1}},
        {"stop_token_ids": [1_000]},
        {"stop_token_ids": [-1]},
        {"stop_token_ids": [SECRET]},
        {"stop_token_ids": [True]},
        {"allowed_token_ids": [5, 1_000]},
        {"logprob_token_ids": [1_000]},
    ],
)
def test_token_ids_outside_the_vocabulary(members: JsonObject) -> None:
    assert refused(**members)["code"] == "invalid_token_id"


@pytest.mark.parametrize("prompt", [[5, 1_000], [[5], [1_000]], [5, -1], [5, 1.5], [5, None]])
def test_prompts_outside_the_vocabulary(prompt: Any) -> None:
    assert refused("/v1/completions", prompt=prompt)["code"] == "invalid_token_id"
    assert refused("/v1/embeddings", input=prompt)["code"] == "invalid_token_id"


def test_prompts_longer_than_the_context() -> None:
    assert refused("/v1/completions", prompt=[5] * 64)["code"] == "context_length_exceeded"
    assert refused("/v1/completions", prompt=["x", [5] * 64])["code"] == "context_length_exceeded"
    assert refused("/v1/embeddings", input=[[5] * 65])["code"] == "context_length_exceeded"
    check("/v1/completions", prompt=[5] * 63)
    check("/v1/completions", prompt=[5] * 64, truncate_prompt_tokens=10)
    check("/v1/embeddings", input=[5] * 64)
    refused("/v1/completions", prompt=[[5], []])


def test_what_is_not_known_is_not_checked() -> None:
    check("/v1/completions", BodyLimits(), prompt=[999_999] * 100, logit_bias={"999999": 1}, stop_token_ids=[999_999])
    refused("/v1/completions", BodyLimits(), prompt=[2**31])
    refused("/v1/completions", BodyLimits(), prompt=[1], stop_token_ids=[-1])


@pytest.mark.parametrize(
    "members",
    [
        {"seed": 2**63},
        {"seed": 2.0**64},
        {"seed": -(2.0**64)},
        {"seed": "1"},
        {"top_k": 0.01},
        {"top_k": 2**31},
        {"min_tokens": 2**40},
        {"logit_bias": {str(n): 1 for n in range(1_025)}},
        {"logit_bias": [1]},
        {"logit_bias": {"5": "x"}},
        {"stop_token_ids": [1] * 1_025},
        {"stop_token_ids": 5},
        {"allowed_token_ids": []},
        {"stop": ["x"] * 65},
        {"stop": [5]},
        {"bad_words": ["x"] * 1_025},
        {"bad_words": [""]},
        {"bad_words": [[5]]},
        {"cache_salt": 5},
        {"cache_salt": ""},
        {"request_id": ["x"]},
        {"session_id": {}},
        {"priority": "high"},
        {"priority": 2**31},
        {"kv_cache_report_mode": "full"},
        {"chat_template": "{% for _ in range(999999999) %}{% endfor %}"},
        {"chat_template_kwargs": {"tokenize": True}},
        {"chat_template_kwargs": [1]},
        {"prompt_embeds": "AAAA"},
    ],
)
def test_members_out_of_range_or_of_another_type(members: JsonObject) -> None:
    error = refused(**members)
    assert error["code"] == "invalid_value"
    assert error["message"].startswith(next(iter(members)))


DEEP: JsonObject = {}
for _ in range(70):
    DEEP = {"items": DEEP}

BAD_SCHEMAS: list[Any] = [
    {"type": "nonsense"},
    {"type": "object", "properties": [SECRET]},
    {"type": "object", "required": SECRET},
    {"enum": SECRET},
    {"properties": {SECRET: {"type": "nonsense"}}},
    {"$schema": "http://json-schema.org/draft-07/schema#", "type": "nonsense"},
    {"$ref": "#/$defs/nowhere"},
    {"$ref": "https://example.org/schema.json"},
    {"$ref": "other.json#/a"},
    {"$ref": "#anchor"},
    {"items": {"$ref": "#/properties/a/type"}, "properties": {"a": {"type": "string"}}},
    {"anyOf": [{"type": "string"}], "items": {"$ref": "#/anyOf/7"}},
    {"$ref": "#"},
    {"anyOf": [{"type": "string"}, {"$ref": "#"}]},
    {"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"$ref": "#/$defs/c"}, "c": {"$ref": "#/$defs/b"}}},
    {"type": "string", "pattern": "(" + SECRET},
    {"type": "string", "pattern": "x" * 9_000},
    {"patternProperties": {"[": {}}},
    {"type": "integer", "maximum": 2**63},
    {"type": "integer", "minimum": -1e300},
    {"type": "array", "items": [{"type": "string"}]},
    {"description": "x" * 300_000},
    DEEP,
    5,
    True,
    None,
]


@pytest.mark.parametrize("schema", BAD_SCHEMAS)
def test_schemas_of_which_no_grammar_can_be_made(schema: Any) -> None:
    assert refused(response_format=shaped(schema))["code"] == "invalid_grammar"
    if schema is not None:
        refused(guided_json=schema)
        refused(structured_outputs={"json": schema})


GOOD_SCHEMAS: list[JsonObject] = [
    {},
    OBJECT,
    {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": OBJECT}, "$ref": "#/definitions/a"},
    {"$schema": "https://example.org/unknown", "type": "object"},
    {"type": "object", "properties": {"next": {"$ref": "#"}, "many": {"type": "array", "items": {"$ref": "#"}}}},
    {"$defs": {"a/b ~": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/a~1b%20~0"}}},
    {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "object"}}},
    {"properties": {"$ref": {"type": "string"}, "default": {"enum": [{"$ref": "#/nowhere"}]}}},
    {"type": "string", "pattern": r"^(?<year>\d{4})-\p{L}+$"},
    {"type": "integer", "maximum": 20_000_000_000, "minimum": -(2**63)},
    {"anyOf": [True, {"type": "string"}], "items": False},
]


@pytest.mark.parametrize("schema", GOOD_SCHEMAS)
def test_schemas_that_pass(schema: JsonObject) -> None:
    check(response_format=shaped(schema))
    check(guided_json=dumps(schema).decode())


@pytest.mark.parametrize(
    "members",
    [
        {"response_format": "json"},
        {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "json_schema", "json_schema": [1]}},
        {"guided_json": "{"},
        {"guided_json": ""},
        {"guided_regex": "(" + SECRET},
        {"guided_regex": ""},
        {"guided_regex": "x{99999999999}"},
        {"guided_choice": []},
        {"guided_choice": [""]},
        {"guided_grammar": " "},
        {"structured_outputs": []},
        {"structured_outputs": {"json": ""}},
        {"structured_outputs": {"json_object": False}},
        {"structured_outputs": {"regex": "["}},
        {"structured_outputs": {"choice": [5]}},
        {"structured_outputs": {"grammar": ""}},
        {"structured_outputs": {"structural_tag": "{" + SECRET}},
        {"structured_outputs": {"structural_tag": dumps({"structures": [{"schema": {"type": "x"}}]}).decode()}},
        {"response_format": {"type": "structural_tag", "format": {"elements": [{"json_schema": {"type": "x"}}]}}},
    ],
)
def test_other_constraints_of_which_no_grammar_can_be_made(members: JsonObject) -> None:
    error = refused(**members)
    assert error["code"] == "invalid_grammar"
    assert error["message"].startswith(next(iter(members)))


def test_tools_that_the_answer_must_call() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "nonsense"}}}]
    strict = [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "nonsense"}}}]
    check(tools=tools)
    check(tools=tools, tool_choice="auto")
    assert refused(tools=tools, tool_choice="required")["message"].startswith("tools.0.function.parameters")
    refused(tools=tools, tool_choice={"type": "function", "function": {"name": "f"}})
    refused(tools=strict)
    check(tools=[{"type": "function", "function": {"name": "f", "parameters": OBJECT}}], tool_choice="required")
    check(tools=[{"type": "function", "function": {"name": "f"}}, {"type": "other"}, 5], tool_choice="required")


def test_an_ordinary_body_passes() -> None:
    check(
        seed=-(2**63),
        logit_bias={"999": -100, "0": 0.5},
        stop="\n",
        stop_token_ids=[0, 999],
        allowed_token_ids=list(range(1_000)),
        bad_words=["x"],
        top_k=-1,
        min_tokens=None,
        priority=5,
        cache_salt="tenant",
        chat_template_kwargs={"enable_thinking": False},
        response_format={"type": "json_object"},
        structured_outputs={"regex": "a+", "choice": None},
        guided_choice=["yes", "no"],
    )
    check(response_format=None, structured_outputs={"json_object": True}, guided_grammar='root ::= "x"')
    check("/v1/completions", prompt="x")
    check("/v1/completions", prompt=["x", "y"], stop=["x"] * 64)
    check("/v1/embeddings", input=["x"], logit_bias={"999999": 1})
