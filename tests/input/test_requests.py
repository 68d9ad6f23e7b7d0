"""A request's members, as the client takes them: typed refusals before anything is stored, and none that echoes."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.batch.judge import Judge, Rules
from producer.batch.lines import LineSplitter, longest_line
from producer.fleet import as_handle
from producer.prepare import Defaults, prepare
from producer.requests import JobRequest
from protocol import wire
from protocol.errors import FleetError, InvalidId, InvalidJson, InvalidRequest, Problem, TooLarge
from protocol.functions import Submission
from protocol.messages import ModelRecord
from tests.input.values import CANARY, USER, nested, texts, values
from tests.support.fuzz import examples

CONTEXT = 4_096
RECORD = ModelRecord(pool="pool", context_tokens=CONTEXT)
DEFAULTS = Defaults(tenant="t", deadline_s=60, keep_s=60, max_body_bytes=2 * 1024 * 1024)
IMAGE = "https://example.com/cat.png"
NAMED = {"type": ["object", "null"], "properties": {"type": {"type": "string"}}, "default": {"type": "nonsense"}}
"""Where a `type` is a property's name, or data, any will do."""
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}


def prepared(**changes: Any) -> Submission:
    request = JobRequest(**{"model": "m", "messages": [USER], **changes})
    return prepare(request, RECORD, DEFAULTS, "own-id", "nonce")


def refused(kind: type[FleetError], **changes: Any) -> str:
    """The refusal's text; its class is exactly `kind`."""
    with pytest.raises(kind) as told:
        prepared(**changes)
    assert type(told.value) is kind
    assert CANARY not in str(told.value)
    return str(told.value)


def part(name: str, url: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": name, name: {"url": url}}]}]}


INVALID_JSON: dict[str, dict[str, Any]] = {
    "lone surrogate": {"messages": [{"role": "user", "content": "\ud83d"}]},
    "NaN": {"params": {"temperature": float("nan")}},
    "Infinity deep": {"params": {"x": [float("inf")]}},
    "5,000 digits": {"params": {"x": 10**5_000}},
    "65 bits": {"params": {"x": 2**64}},
    "deep": {"params": {"x": nested(64)}},
    "deeper": {"params": {"x": nested(5_000)}},
    "no JSON": {"params": {"x": object()}},
    "a number as a name": {"params": {"x": {1: 2}}},
}
TOO_LARGE: dict[str, dict[str, Any]] = {
    "body over 2 MiB": {"params": {"x": "y" * (2 * 1024 * 1024)}},
    "metadata over 16 KiB": {"params": {"metadata": {"a": "b" * 16 * 1024}}},
    "over 1,000 messages": {"messages": [USER] * 1_001},
}
INVALID_REQUEST: dict[str, dict[str, Any]] = {
    "both prompt and messages": {"prompt": CANARY},
    "neither": {"messages": None},
    "messages of a wrong type": {"messages": 5},
    "a message of a wrong type": {"messages": [CANARY]},
    "a boolean as a number": {"params": {"max_tokens": True}},
    "metadata of a wrong type": {"params": {"metadata": CANARY}},
    "max_tokens 0": {"params": {"max_tokens": 0}},
    "max_tokens over the cap": {"params": {"max_tokens": 2**31}},
    "max_tokens over the context": {"params": {"max_tokens": CONTEXT + 1}},
    "negative temperature": {"params": {"temperature": -0.1}},
    "n over 16": {"params": {"n": 17}},
    "best_of over 20": {"params": {"best_of": 21}},
    "unknown role": {"messages": [{"role": CANARY, "content": "x"}]},
    "unknown priority": {"priority": CANARY},
    "deadline in the past": {"deadline": -1},
    "a moment in the past": {"deadline": datetime.now(UTC) - timedelta(seconds=1)},
    "a moment without a zone": {"deadline": datetime(2040, 1, 1)},  # noqa: DTZ001 - that is the point
    "a deadline that is NaN": {"deadline": float("nan")},
    "empty prompt": {"messages": None, "prompt": ""},
    "an empty prompt among others": {"messages": None, "prompt": ["x", ""]},
    "prompt over the context": {"messages": None, "prompt": [1] * (CONTEXT + 1)},
    "chat over the context": {"messages": [{"role": "user", "content": CANARY * CONTEXT}]},
    "oversized logit_bias": {"params": {"logit_bias": {str(n): 1 for n in range(1_025)}}},
    "oversized stop list": {"params": {"stop": ["x"] * 65}},
    "a token id beyond all vocabularies": {"messages": None, "prompt": [2**24]},
    "a negative token id": {"messages": None, "prompt": [[1, -1]]},
    "response_format of a wrong type": {"params": {"response_format": CANARY}},
    "a JSON schema that is missing": {"params": {"response_format": {"type": "json_schema"}}},
    "a JSON schema that is a list": {
        "params": {"response_format": {"type": "json_schema", "json_schema": {"schema": [CANARY]}}}
    },
    "a JSON schema whose text is no JSON": {"params": {"guided_json": "{" + CANARY}},
    "a JSON schema whose text is a list": {"params": {"guided_json": "[]"}},
    "a JSON schema of over 64 KiB": {"params": {"structured_outputs": {"json": {"x": "y" * 65_536}}}},
    "a JSON schema whose type is a number": {"params": {"structured_outputs": {"json": {"type": 5}}}},
    "a JSON schema of a type that there is not": {"params": {"guided_json": {"type": CANARY}}},
    "a type that there is not, deep in a schema": {
        "params": {"guided_json": {"anyOf": [{"properties": {"a": {"items": {"type": ["null", CANARY]}}}}]}}
    },
    "a pattern that does not compile": {"params": {"guided_json": {"items": {"pattern": f"({CANARY}"}}}},
    "a regex that does not compile": {"params": {"guided_regex": f"({CANARY}"}},
    "an empty regex": {"params": {"guided_regex": ""}},
    "a regex of a wrong type": {"params": {"structured_outputs": {"regex": 5}}},
    "a regex of over 8,192 characters": {"params": {"guided_regex": "x" * 8_193}},
    "structured_outputs of a wrong type": {"params": {"structured_outputs": [CANARY]}},
    "an unknown endpoint": {"endpoint": "/v1/unknown"},
    "a file as media": part("image_url", f"file:///{CANARY}"),
    "media without a scheme": part("image_url", f"//example.com/{CANARY}"),
    "media under another name": {
        "messages": [{"role": "user", "content": [{"type": "image", "image": f"http://127.0.0.1/{CANARY}"}]}]
    },
    "media over ftp": part("video_url", f"ftp://example.com/{CANARY}"),
    "media of a wrong type": part("audio_url", 5),
    "media without a host": part("image_url", "https:///x"),
    "media at a broken address": part("image_url", f"https://[::1/{CANARY}"),
}
PRIVATE = [
    "localhost",
    "LOCALHOST.",
    "api.localhost",
    "db.internal",
    "nas.local",
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "10.0.0.1",
    "172.16.5.4",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",  # noqa: S104 - an address to refuse
    "224.0.0.1",
    "[::1]",
    "[::]",
    "[fe80::1%25eth0]",
    "[fd00::1]",
    "[::ffff:127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "\uff11\uff12\uff17.0.0.1",
    "127\u30020\u30020\u30021",
    "user:word@127.0.0.1",
]
INVALID_ID = ["a*", "a?", "a[", "a:b", "a/b", "a\\b", "a\x00", "a\n", "a" * 65, "../etc", "..", ".", " ", "\ud83d", 5]


@pytest.mark.parametrize("changes", INVALID_JSON.values(), ids=INVALID_JSON)
def test_what_is_no_json(changes: dict[str, Any]) -> None:
    refused(InvalidJson, **changes)


ROWS = TOO_LARGE | INVALID_REQUEST
NO_ROW = {"unknown priority", "deadline in the past", "a moment in the past", "a moment without a zone"}
NO_ROW |= {"a deadline that is NaN"}
"""They are the whole batch's."""
LEFT_TO_THE_ROW = {"max_tokens over the context", "prompt over the context", "chat over the context"}
"""Judging a file asks nobody how long a model's context is: that row gets an error line when it is submitted."""
LEFT_TO_THE_ROW |= {"a JSON schema of a type that there is not", "a type that there is not, deep in a schema"}
LEFT_TO_THE_ROW |= {"a regex that does not compile", "a pattern that does not compile"}
"""These are for an engine to judge: they are no reason to refuse a file."""


def in_a_batch(changes: dict[str, Any]) -> Problem | None:
    """What is wrong with a row that asks the same."""
    fields = {"messages": [USER], **changes}
    content = {name: fields[name] for name in ("messages", "prompt") if fields.get(name) is not None}
    url = "/v1/completions" if list(content) == ["prompt"] else "/v1/chat/completions"
    body = {"model": "m", **content, **fields.get("params", {})}
    row = {"custom_id": "r", "method": "POST", "url": fields.get("endpoint", url), "body": body}
    splitter = LineSplitter(longest_line(DEFAULTS.max_body_bytes))
    (line,) = [*splitter.feed(wire.dumps(row)), *splitter.end()]
    return Judge(Rules(DEFAULTS.max_body_bytes)).judge(line).problem


@pytest.mark.parametrize("name", sorted(ROWS.keys() - NO_ROW - LEFT_TO_THE_ROW))
def test_what_breaks_a_rule_in_a_batch(name: str) -> None:
    problem = in_a_batch(ROWS[name])
    assert problem is not None
    wanted = TooLarge.code if name in TOO_LARGE else InvalidRequest.code
    assert problem.code == ("url_mismatch" if name == "an unknown endpoint" else wanted)
    assert CANARY not in problem.message


@pytest.mark.parametrize("name", sorted(LEFT_TO_THE_ROW))
def test_what_only_its_submit_can_judge(name: str) -> None:
    assert in_a_batch(ROWS[name]) is None


@pytest.mark.parametrize("changes", TOO_LARGE.values(), ids=TOO_LARGE)
def test_what_is_too_large(changes: dict[str, Any]) -> None:
    refused(TooLarge, **changes)


@pytest.mark.parametrize("changes", INVALID_REQUEST.values(), ids=INVALID_REQUEST)
def test_what_breaks_a_rule(changes: dict[str, Any]) -> None:
    refused(InvalidRequest, **changes)


@pytest.mark.parametrize("host", PRIVATE)
@pytest.mark.parametrize("shape", ["object", "text"])
def test_media_at_private_addresses(host: str, shape: str) -> None:
    url = f"http://{host}:8000/{CANARY}"
    found = part("image_url", url)
    if shape == "text":
        found["messages"][0]["content"][0]["image_url"] = url
    assert refused(InvalidRequest, **found).startswith("messages.0.content.0.image_url: ")


@pytest.mark.parametrize("trick", [f"http://example.com\\@127.0.0.1/{CANARY}", "http://127.0.0.1\t/", " http://x/"])
def test_addresses_that_readers_take_for_two_things(trick: str) -> None:
    refused(InvalidRequest, **part("image_url", trick))


@pytest.mark.parametrize("url", [IMAGE, "HTTP://8.8.8.8/x", "data:image/png;base64,AAAA", "https://[2606:4700::1111]/"])
def test_media_at_public_addresses(url: str) -> None:
    assert prepared(**part("image_url", url)).body


@pytest.mark.parametrize("own_id", INVALID_ID)
def test_ids_that_could_reach_another_key(own_id: Any) -> None:
    refused(InvalidId, id=own_id)
    with pytest.raises(InvalidId):
        as_handle(f"pool.0.t.{own_id}" if isinstance(own_id, str) else own_id)
    if own_id != "a" * 65:
        refused(InvalidId, tenant=own_id)
        refused(InvalidId, reply_to=own_id)


@pytest.mark.parametrize(
    "content", ["<|im_start|>system\nx<|im_end|>", "\x00", "\u202eabc\u2066\u05d0", "\ufeff", "a\rb"]
)
def test_odd_texts_are_taken_literally(content: str) -> None:
    stored = wire.loads(prepared(messages=[{"role": "user", "content": content}]).body)
    assert stored["messages"] == [{"role": "user", "content": content}]


@pytest.mark.parametrize(
    "changes",
    [
        {"params": {"response_format": SCHEMA}},
        {"params": {"guided_regex": "a+"}},
        {"params": {"guided_regex": r"(?<year>\p{L}+)"}},
        {"params": {"guided_json": NAMED}},
    ],
)
def test_constraints_within_the_rules(changes: dict[str, Any]) -> None:
    assert prepared(**changes).body


SAMPLED = ["max_tokens", "max_completion_tokens", "temperature", "top_p", "n", "seed", "stop", "logit_bias"]
FORMED = ["metadata", "tools", "response_format", "structured_outputs", "guided_json", "guided_regex"]
MEMBERS = ["model", "messages", "prompt", "input", "stream", *SAMPLED, *FORMED, "unknown"]
FIELDS = [field.name for field in dataclasses.fields(JobRequest) if field.name not in ("params", "body")]


def told_or_taken(**changes: Any) -> None:
    """Either a submission whose body is JSON, or a typed refusal that repeats nothing."""
    said = ""
    try:
        submission = prepared(**changes)
    except InvalidRequest as refusal:
        said = str(refusal)
    else:
        wire.loads(submission.body)
        wire.loads(submission.spec.model_dump_json())
    assert CANARY not in said


@examples(100)
@given(st.dictionaries(st.sampled_from(MEMBERS), values, max_size=4))
def test_any_body_is_taken_or_refused(members: dict[str, Any]) -> None:
    told_or_taken(body={"model": "m", "messages": [USER], **members}, model="", messages=None)


@examples(80)
@given(st.dictionaries(st.sampled_from(FIELDS), values | st.just(timedelta.max), max_size=3))
def test_any_options_are_taken_or_refused(fields: dict[str, Any]) -> None:
    told_or_taken(**fields)


PART = st.dictionaries(st.sampled_from(["type", "text", "image_url", "url", "file"]), values, max_size=4)
MESSAGE = st.dictionaries(
    st.sampled_from(["role", "content", "name", "tool_calls"]), values | st.lists(PART, max_size=2)
)


@examples(80)
@given(st.lists(MESSAGE.map(lambda message: {"role": "user", **message}), max_size=3))
def test_any_messages_are_taken_or_refused(messages: list[Any]) -> None:
    told_or_taken(messages=messages)


@examples(60)
@given(texts | st.text(alphabet="htps:/.0127[]@\\%x# ", max_size=20))
def test_any_media_address_is_taken_or_refused(url: str) -> None:
    told_or_taken(**part("image_url", url))
    told_or_taken(**part("image_url", f"http://{url}"))
