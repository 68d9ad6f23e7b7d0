"""JSON and frames: strict on the way in, the same bytes for the same value on the way out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import frames, wire
from protocol.errors import InvalidRequest
from protocol.messages import Frame, LoadReport, Outcome
from protocol.states import State

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner), max_leaves=10)


@given(values)
def test_a_value_survives(value: object) -> None:
    assert wire.loads(wire.dumps(value)) == value
    assert wire.loads(wire.canonical(value)) == value


@given(st.dictionaries(st.text("abc"), values))
def test_equal_objects_have_equal_bytes(value: dict[str, object]) -> None:
    assert wire.canonical(value) == wire.canonical(dict(reversed(value.items())))


@pytest.mark.parametrize("data", [b"", b"{", b"NaN", b"[Infinity]", b'"\xff"', b"{'a': 1}", b"[1,]", b"[" * 100_000])
def test_what_is_not_json_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="not valid JSON"):
        wire.loads(data)


SECRET = "the user's words"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {SECRET + "\ud800": 1}, {1, 2}, b"bytes"], ids=repr)
def test_what_can_not_be_json_is_refused(value: object) -> None:
    with pytest.raises(InvalidRequest) as told:
        wire.canonical({"content": SECRET, "value": value})
    assert SECRET not in str(told.value)


def test_an_endless_nesting_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(InvalidRequest):
        wire.canonical(value)


def test_a_frame_reads_the_same_from_the_log_and_the_channel() -> None:
    payload = b'[{"choices":[{"index":0,"delta":{"content":"Hi"}}]},{"choices":[{"index":0,"text":"!"}]}]'
    frame = frames.decode(b"7-3", payload)
    assert frame == frames.decode_message(b"7-3 " + payload)
    assert (frame.attempt, frame.seq, frame.id, frame.position, frame.text) == (7, 3, "7-3", (7, 3), "Hi!")
    assert frames.parse_position(frame.id) == frame.position


def test_the_seal_tells_how_the_job_ended() -> None:
    assert frames.decode(b"7-4", b'{"seal":"failed"}') == Frame(7, 4, seal=State.FAILED)


@pytest.mark.parametrize("text", ["", "7", "7-", "a-1", "1-2-3"])
def test_a_cursor_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a frame id reads ATTEMPT-SEQ"):
        frames.parse_position(text)


@pytest.mark.parametrize(
    "chunk", [{}, {"choices": []}, {"choices": [{"index": 1, "delta": {"content": "x"}}]}, {"choices": [{"delta": {}}]}]
)
def test_a_chunk_may_say_nothing(chunk: wire.JsonObject) -> None:
    assert Frame(1, 1, chunks=(chunk,)).text == ""


def test_messages_may_have_fields_of_a_newer_version() -> None:
    read = Outcome.model_validate_json('{"state":"completed","from_the_future":1}')
    assert read == Outcome(state=State.COMPLETED)


@pytest.mark.parametrize(("used", "total", "share"), [(0, 0, 0.0), (5, 10, 0.5), (12, 10, 1.0)])
def test_kv_is_a_share(used: int, total: int, share: float) -> None:
    assert LoadReport(kv_used_tokens=used, kv_total_tokens=total).kv == share
