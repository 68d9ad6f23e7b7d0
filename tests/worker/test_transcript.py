"""An answer takes the space of its text, and an endless one ends."""

import pytest

from tests.worker.stage import END, word
from worker import transcript as transcript_module
from worker.engine.base import EngineFault
from worker.transcript import MERGE_EVERY, Transcript


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
