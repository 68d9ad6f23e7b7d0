"""Which streams are slow, by a clock that the test turns."""

import pytest

from tests.support.waiting import FakeClock
from worker.figures import LONG_PROMPT_TOKENS, Stream, Tempo, slow_share

TARGET_MS = 50.0


def share(clock: FakeClock, *streams: Stream, stream_tokens: int = 1) -> float:
    return slow_share(streams, clock.monotonic(), TARGET_MS, stream_tokens)


def begun(clock: FakeClock, chunks: int, prompt_tokens: int = 10) -> Stream:
    return Stream(Tempo(clock.monotonic(), chunks), prompt_tokens)


def test_without_streams_none_is_slow() -> None:
    assert share(FakeClock()) == 0.0


@pytest.mark.parametrize(("chunks", "slow"), [(1, 0.0), (4, 0.0), (5, 1.0), (6, 0.0)])
def test_a_stream_is_slow_from_five_tokens_on(chunks: int, slow: float) -> None:
    clock = FakeClock()
    stream = begun(clock, chunks)
    clock.advance(0.201)  # four tokens since the first may take 0.2 s
    assert share(clock, stream) == slow


def test_a_stream_that_stalls_becomes_slow_before_its_next_token() -> None:
    clock = FakeClock()
    stream = begun(clock, 11)
    clock.advance(0.499)
    assert share(clock, stream) == 0.0
    clock.advance(0.002)
    assert share(clock, stream) == 1.0
    stream.tempo.chunks += 1
    assert share(clock, stream) == 0.0


@pytest.mark.parametrize(("prompt_tokens", "slow"), [(LONG_PROMPT_TOKENS, 1.0), (LONG_PROMPT_TOKENS + 1, 0.0)])
def test_behind_a_long_prompt_tokens_may_take_twice_as_long(prompt_tokens: int, slow: float) -> None:
    clock = FakeClock()
    stream = begun(clock, 11, prompt_tokens)
    clock.advance(0.9)
    assert share(clock, stream) == slow


def test_the_share_is_of_those_that_have_five() -> None:
    clock = FakeClock()
    streams = [begun(clock, chunks) for chunks in (1, 2, 5, 9, 99, 99)]
    clock.advance(0.3)
    assert share(clock, *streams) == 0.25


@pytest.mark.parametrize(("chunks", "after_s", "slow"), [(1, 9.0, 0.0), (2, 0.34, 0.0), (2, 0.36, 1.0), (3, 0.54, 0.0)])
def test_chunks_of_several_tokens_count_as_these_and_those_on_their_way(
    chunks: int, after_s: float, slow: float
) -> None:
    clock = FakeClock()
    stream = begun(clock, chunks)
    clock.advance(after_s)
    assert share(clock, stream, stream_tokens=4) == slow
