"""JSON that users wrote, as bytes: what is refused at each door that reads some, and never repeated."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.batch.lines import BadRow, Line, parse
from protocol import wire
from protocol.errors import InvalidJson
from tests.input.values import CANARY, chat, nested, values
from tests.support.fuzz import examples
from tokenfleet.cli.submit import _whole_body

WHOLE = json.dumps(chat()).encode()


def with_member(member: str) -> bytes:
    return WHOLE[:-1] + b", " + member.encode(errors="surrogatepass") + b"}"


BAD_JSON = {
    "empty": b"",
    "white space": b" \t",
    "truncated": WHOLE[:-1],
    "bad UTF-8": WHOLE[:-1] + b', "x": "\xff"}',
    "lone surrogate": with_member(r'"x": "\ud83d"'),
    "surrogate in a name": with_member(r'"\udc00": 1'),
    "encoded surrogate": with_member('"x": "\ud83d"'),
    "NaN": with_member('"x": NaN'),
    "Infinity": with_member('"x": -Infinity'),
    "1e400": with_member('"x": 1e400'),
    "5,000 digits": with_member('"x": ' + "7" * 5_000),
    "100 digits": with_member('"x": ' + "7" * 100),
    "65 bits": with_member(f'"x": {2**64}'),
    "65 bits below": with_member(f'"x": {-(2**63) - 1}'),
    "the same name twice": with_member('"model": "other"'),
    "the same name twice, escaped": with_member(r'"mode\u006c": "other"'),
    "the same name twice, deep": with_member('"x": [{"a": 1, "a": 1}]'),
    "nested over 64 deep": with_member(f'"x": {json.dumps(nested(64))}'),
    "nested over 1,000 deep": with_member(f'"x": {json.dumps(nested(900))}'),
    "nested without an end": with_member('"x": ' + "[" * 100_000),
    "trailing data": WHOLE + b" {}",
    "two objects": WHOLE + WHOLE,
    "a list": b"[" + WHOLE + b"]",
    "a text": b'"canary-prompt"',
    "null": b"null",
    "single quotes": b"{'model': 'canary-prompt'}",
    "UTF-16": WHOLE.decode().encode("utf-16"),
    "NUL between": WHOLE[:-1] + b"\x00}",
}
GOOD_JSON = {
    "a byte order mark": b"\xef\xbb\xbf" + WHOLE,
    "64 deep": with_member(f'"x": {json.dumps(nested(63))}'),
    "brackets in a text": with_member('"x": "' + "[{" * 500 + '"'),
    "64 bits": with_member(f'"x": [{2**64 - 1}, {-(2**63)}]'),
    "long digits in a text": with_member('"x": "' + "7" * 5_000 + '"'),
    "a long fraction": with_member('"x": 0.' + "7" * 50),
    "an escaped NUL": with_member(r'"x": "\u0000"'),
    "a name twice, in two objects": with_member('"x": [{"a": 1}, {"a": 1}]'),
    "special tokens and right to left": with_member('"x": "<|im_start|>\u202e\u05d0"'),
}


def as_row(body: bytes) -> bytes:
    return b'{"custom_id": "r", "method": "POST", "url": "/v1/chat/completions", "body": ' + body + b"}"


@pytest.mark.parametrize("data", BAD_JSON.values(), ids=BAD_JSON)
def test_a_body_that_is_no_json_is_refused_at_the_command_line(data: bytes) -> None:
    with pytest.raises(InvalidJson) as refused:
        _whole_body(data)
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize("data", BAD_JSON.values(), ids=BAD_JSON)
def test_a_row_that_is_no_json_is_refused_alone(data: bytes) -> None:
    bad = parse(Line(7, as_row(data)))
    assert isinstance(bad, BadRow)
    assert bad.number == 7
    assert bad.code in ("invalid_json_line", "invalid_request")
    assert CANARY not in bad.message


def test_a_row_that_is_refused_keeps_its_id_where_one_can_be_read() -> None:
    for name in ("the same name twice", "65 bits", "nested over 64 deep"):
        bad = parse(Line(7, as_row(BAD_JSON[name])))
        assert isinstance(bad, BadRow)
        assert (bad.code, bad.custom_id) == ("invalid_json_line", "r")


@pytest.mark.parametrize("data", GOOD_JSON.values(), ids=GOOD_JSON)
def test_other_json_is_taken_as_it_is(data: bytes) -> None:
    assert _whole_body(data) == json.loads(data.removeprefix(b"\xef\xbb\xbf"))


@examples(80)
@given(st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode(errors="surrogatepass")))
def test_bytes_are_json_or_refused_as_such(data: bytes) -> None:
    try:
        value = wire.loads_of_user(data)
    except InvalidJson:
        return
    assert wire.loads(wire.dumps(value)) == value


@examples(80)
@given(values, st.integers(min_value=0), st.integers(min_value=0, max_value=255))
def test_a_changed_byte_is_never_quoted(value: object, at: int, byte: int) -> None:
    try:
        data = bytearray(wire.canonical({"x": value, "y": CANARY}))
    except InvalidJson:
        return
    data[at % len(data)] = byte
    said = ""
    try:
        wire.loads_of_user(bytes(data))
    except InvalidJson as refused:
        said = str(refused)
    assert CANARY not in said
