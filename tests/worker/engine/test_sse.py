"""The event stream parser, whatever pieces the network makes of a stream."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.engine.sse import SseError, SseParser

LIMIT = 200


def heard(stream: bytes, cuts: list[int] | None = None) -> Iterator[str]:
    parser = SseParser(LIMIT)
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts or []), len(stream)]
    for begin, end in pairwise(edges):
        yield from (data.decode() for data in parser.feed(stream[begin:end]))


def parse(stream: bytes, cuts: list[int] | None = None) -> list[str]:
    return list(heard(stream, cuts))


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data:a\r\n\r\ndata:  b\r\n\r\n", ["a", " b"]),
        (b"data: a\r\rdata: b\r\r", ["a", "b"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b": ping\n\nevent: x\nid: 7\nretry: 1\ndata: a\n\n", ["a"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"data\n\n", [""]),
        (b"data: never ended\n", []),
        (b"\n\n\n", []),
    ],
)
def test_the_rules_of_event_streams(stream: bytes, events: list[str]) -> None:
    assert parse(stream) == events


LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=12)
CUTS = st.lists(st.integers(0, 10_000), max_size=12)


@given(st.lists(LINES, min_size=1, max_size=6), st.sampled_from(["\n", "\r\n", "\r"]), CUTS)
def test_no_split_changes_the_events(lines: list[str], end: str, cuts: list[int]) -> None:
    stream = "".join(f": c{end}data: {line}{end}{end}" for line in lines).encode()
    assert parse(stream, cuts) == lines


@given(st.lists(LINES, min_size=1, max_size=6), st.booleans(), CUTS)
def test_what_comes_before_garbage_is_heard_however_it_is_cut(lines: list[str], mark: bool, cuts: list[int]) -> None:
    told = b"\xef\xbb\xbf" * mark + "".join(f"data: {line}\n\n" for line in lines).encode()
    events = heard(told + b"x" * (LIMIT + 1), cuts)
    assert [next(events) for _ in lines] == lines
    with pytest.raises(SseError):
        next(events)


@pytest.mark.parametrize("first", [b"data: a\n\n", b": ping\n\n"])
def test_a_mark_of_byte_order_stands_at_the_beginning_alone(first: bytes) -> None:
    parser = SseParser()
    list(parser.feed(first))
    assert list(parser.feed(b"\xef\xbb\xbfdata: b\n\n")) == []


def test_each_byte_alone() -> None:
    stream = "data: Grüße 🙂\r\n\r\n".encode()
    assert parse(stream, list(range(len(stream)))) == ["Grüße 🙂"]


@pytest.mark.parametrize("pieces", [[b"data: ", b"x" * 10, b"x" * 10], [b"data: " + b"x" * 20 + b"\n"]])
def test_a_line_without_end_is_refused(pieces: list[bytes]) -> None:
    parser = SseParser(max_line_bytes=20)
    with pytest.raises(SseError, match="20 bytes"):
        [list(parser.feed(piece)) for piece in pieces]


def test_bytes_that_are_no_text_are_passed_on() -> None:
    """Whoever reads them as JSON refuses them."""
    assert list(SseParser().feed(b"data: \xff\n\n")) == [b"\xff"]
