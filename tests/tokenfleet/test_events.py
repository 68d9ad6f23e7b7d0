"""A job's events as `follow` prints them."""

import json
from collections.abc import AsyncIterator

import pytest

from producer.events import End, Event, Restart, Tokens, Truncated
from protocol.messages import ErrorInfo, Outcome
from protocol.states import State
from tokenfleet.cli.events import answer_of, exit_of_outcome, outcome_as_json, print_events
from tokenfleet.cli.exits import Exit

DONE = Outcome(state=State.COMPLETED, status_code=200, body={"choices": [{"message": {"content": "Hi there"}}]})
REFUSED = Outcome(state=State.COMPLETED, status_code=400, body={"error": {"code": "too_long", "message": "No."}})
FAILED = Outcome(state=State.FAILED, error=ErrorInfo(code="struck_out", message="It killed three engines."))


def said(text: str, frame_id: str = "1-1") -> Tokens:
    return Tokens(frame_id, ({"choices": [{"index": 0, "delta": {"content": text}}]},))


async def story(*events: Event) -> AsyncIterator[Event]:
    for event in events:
        yield event


async def test_text_goes_to_stdout_and_the_rest_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    events = story(said("Hi"), Restart("another attempt"), said("Hi "), Truncated(), said("there"), End("2-3", DONE))
    assert await print_events(events, as_json=False) is Exit.CLEAN
    out, err = capsys.readouterr()
    assert out == "Hi\nHi there\n"
    assert "[another attempt]" in err
    assert "[tokens are missing here" in err


@pytest.mark.parametrize(
    ("outcome", "shown"),
    [
        (FAILED, "job failed  struck_out: It killed three engines."),
        (REFUSED, "job completed  too_long: No."),
        (Outcome(state=State.CANCELLED), "job cancelled"),
    ],
)
async def test_a_job_without_an_answer_is_code_3(
    outcome: Outcome, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await print_events(story(End("1-1", outcome)), as_json=False) is Exit.FAILED
    assert shown in capsys.readouterr().err


async def test_json_has_one_object_for_each_event(capsys: pytest.CaptureFixture[str]) -> None:
    await print_events(story(said("Hi"), Restart("why"), Truncated(), End("2-3", DONE)), as_json=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["tokens", "restart", "truncated", "end"]
    assert (lines[0]["id"], lines[0]["text"]) == ("1-1", "Hi")
    assert lines[3] == {"event": "end", "id": "2-3", **outcome_as_json(DONE)}


def test_answers_are_found_in_chats_and_completions() -> None:
    assert answer_of(DONE) == "Hi there"
    assert answer_of(Outcome(state=State.COMPLETED, body={"choices": [{"text": "Once"}]})) == "Once"
    assert answer_of(FAILED) == ""
    assert exit_of_outcome(DONE) is Exit.CLEAN
