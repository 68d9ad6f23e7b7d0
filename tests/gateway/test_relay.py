"""What a client is told of a job's events, chunk by chunk."""

import pytest

from producer.events import End, Restart, Tokens, Truncated
from producer.gateway.outlet import encoded
from producer.gateway.relay import Cursor, Message, Relay
from protocol.errors import InvalidRequest
from protocol.handle import Handle
from protocol.messages import Outcome
from protocol.states import State
from protocol.wire import JsonObject, loads

HANDLE = Handle.parse("pool.0.t.id")
DONE = End("7-3", Outcome(state=State.COMPLETED, status_code=200, body={}))
USAGE: JsonObject = {"choices": [], "usage": {"total_tokens": 3}}


def chunk(text: str, **more: object) -> JsonObject:
    return {"choices": [{"index": 0, "delta": {"content": text}, **more}]}


def said(messages: list[Message]) -> list[tuple[str, str]]:
    """The id and the text of each."""
    return [(message.id, loads(message.data)["choices"][0]["delta"]["content"]) for message in messages]


def test_each_chunk_has_a_place_of_its_own() -> None:
    messages = Relay(HANDLE).take(Tokens("7-1", (chunk("a"), chunk("b"), chunk("c"))))
    assert said(messages) == [("7-1.1", "a"), ("7-1.2", "b"), ("7-1", "c")]


@pytest.mark.parametrize(
    ("place", "cursor"),
    [
        ("", Cursor()),
        ("7-3", Cursor("7-3")),
        ("7-3.2", Cursor("7-2", "7-3", 2)),
        ("7-1.1", Cursor("7-0", "7-1", 1)),
    ],
)
def test_a_place_is_read_back(place: str, cursor: Cursor) -> None:
    assert Cursor.parse(place) == cursor


@pytest.mark.parametrize("place", ["7", "7-", "7-1.", "7-1.x", " 7-1", "7-1\n", "7-1.1.1", f"{10**19}-1"])
def test_what_is_no_place(place: str) -> None:
    with pytest.raises(InvalidRequest):
        Cursor.parse(place)


def test_a_client_gets_the_rest_of_a_frame() -> None:
    relay = Relay(HANDLE, cursor=Cursor.parse("7-1.2"))
    assert said(relay.take(Tokens("7-1", (chunk("a"), chunk("b"), chunk("c"))))) == [("7-1", "c")]
    assert said(relay.take(Tokens("7-2", (chunk("d"), chunk("e"))))) == [("7-2.1", "d"), ("7-2", "e")]


@pytest.mark.parametrize(("usage", "count"), [(True, 2), (False, 1)])
def test_the_usage_is_told_to_who_asked(usage: bool, count: int) -> None:
    messages = Relay(HANDLE, "openai", usage).take(Tokens("7-1", (chunk("a"), USAGE)))
    assert len(messages) == count


@pytest.mark.parametrize("usage", [True, False])
def test_a_stored_response_has_its_usage_in_a_chunk_of_its_own(usage: bool) -> None:
    whole = chunk("all", finish_reason="stop") | {"usage": {"total_tokens": 3}}
    messages = [loads(one.data) for one in Relay(HANDLE, "openai", usage).take(Tokens("7-1", (whole,)))]
    assert "usage" not in messages[0]
    assert [message["usage"] for message in messages[1:]] == ([{"total_tokens": 3}] if usage else [])


def test_openai_s_clients_are_told_that_their_text_counts_no_more() -> None:
    for event, code in ((Restart("why"), "restarted"), (Truncated(), "truncated")):
        relay = Relay(HANDLE, "openai")
        error, done = relay.take(event)
        assert loads(error.data)["error"]["code"] == code
        assert str(HANDLE) in loads(error.data)["error"]["message"]
        assert (done.data, relay.over) == (b"[DONE]", True)


def test_others_go_on() -> None:
    relay = Relay(HANDLE)
    assert [one.name for event in (Restart("why"), Truncated()) for one in relay.take(event)] == [
        "restart",
        "truncated",
    ]
    assert not relay.over
    assert relay.take(DONE) == [Message(b"[DONE]", "7-3")]
    assert relay.over


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome(state=State.EXPIRED), "expired"),
        (Outcome(state=State.FAILED, status_code=400, body={"error": {"code": "odd"}}), "odd"),
        (Outcome(state=State.FAILED, status_code=400, body={"message": "older servers say it so"}), "engine_refused"),
    ],
)
def test_a_failure_is_an_event_before_the_last(outcome: Outcome, code: str) -> None:
    error, done = Relay(HANDLE).take(End("7-1", outcome))
    assert (loads(error.data)["error"]["code"], done.data) == (code, b"[DONE]")


def test_an_event_on_the_wire() -> None:
    assert encoded(Message(b"{}", "7-1", "restart")) == b"event: restart\nid: 7-1\ndata: {}\n\n"
    assert encoded(Message(b"[DONE]")) == b"data: [DONE]\n\n"
