"""An answer takes the space of its text, and an endless one ends."""

from collections.abc import Iterable
from time import process_time

import pytest

from protocol.wire import JsonObject
from tests.worker.stage import END, word
from worker import gathered
from worker import transcript as transcript_module
from worker.assemble import merge_chunks
from worker.engine.base import EngineFault
from worker.gathered import MERGE_EVERY
from worker.transcript import Transcript


def test_thousands_of_tokens_are_kept_as_few_chunks() -> None:
    transcript = Transcript("/v1/chat/completions")
    for number in range(10_000):
        transcript.add(word(f"{number} "))
    transcript.add(END)
    assert len(transcript._chunks) <= MERGE_EVERY
    response = transcript.response()
    assert response["choices"][0]["message"]["content"] == "".join(f"{number} " for number in range(10_000))
    assert response["usage"]["total_tokens"] == 2


def test_tokens_are_counted_before_chunks_are_merged() -> None:
    transcript = Transcript("/v1/chat/completions")
    for number in range(3 * MERGE_EVERY):
        transcript.add(word(f"{number} "))
    transcript.add(word("two more"), tokens=2)
    transcript.add(END)
    assert transcript.tokens == 3 * MERGE_EVERY + 2


def test_no_answer_is_a_fault() -> None:
    with pytest.raises(EngineFault, match="no answer"):
        Transcript("/v1/completions").response()


def test_an_end_without_a_choice_is_no_answer() -> None:
    transcript = Transcript("/v1/chat/completions")
    transcript.add({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 0, "total_tokens": 1}})
    with pytest.raises(EngineFault, match="no answer"):
        transcript.response()


def test_what_cannot_be_merged_costs_in_proportion_to_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0

    def counted(chunks: Iterable[JsonObject]) -> list[JsonObject]:
        nonlocal looked_at
        looked_at += len(kept := list(chunks))
        return merge_chunks(kept)

    monkeypatch.setattr(gathered, "merge_chunks", counted)
    transcript = Transcript("/v1/chat/completions")
    for number in range(10_000):
        piece = {"index": 0, "function": {"arguments": f"{number} "}}
        transcript.add({"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]})
    assert looked_at < 5 * 10_000
    (call,) = transcript.response()["choices"][0]["message"]["tool_calls"]
    assert call["function"]["arguments"] == "".join(f"{number} " for number in range(10_000))


def test_an_event_full_of_tool_calls_does_not_stop_the_worker() -> None:
    transcript = Transcript("/v1/chat/completions")
    pieces = [{"index": index, "id": str(index)} for index in range(20_000)]
    transcript.add({"choices": [{"index": 0, "delta": {"tool_calls": pieces}}]})
    begun_s = process_time()
    calls = transcript.response()["choices"][0]["message"]["tool_calls"]
    assert process_time() - begun_s < 3  # by the square: over 10
    assert calls == [{"id": str(index)} for index in range(20_000)]


def test_an_endless_answer_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript_module, "MOST_CHUNKS", 1_000)
    transcript = Transcript("/v1/completions")
    for _ in range(1_000):
        transcript.add(word("x"))
    with pytest.raises(EngineFault, match="1000"):
        _fill(transcript)


def _fill(transcript: Transcript) -> None:
    for _ in range(2 * MERGE_EVERY):
        transcript.add(word("x"))
