"""Reading batch files, byte for byte, and building output lines."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.batch import rows
from producer.batch.lines import BadRow, Line, LineSplitter, Row, parse
from producer.batch.tally import BatchSummary, FinishedRow, Waits, nearest_rank
from protocol.messages import ErrorInfo, Outcome
from protocol.states import State
from tests.support.fuzz import examples


def split(*parts: bytes) -> list[tuple[int, bytes]]:
    splitter = LineSplitter(1_000_000)
    lines = [line for part in parts for line in splitter.feed(part)]
    return [(line.number, line.data) for line in [*lines, *splitter.end()] if isinstance(line, Line)]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\nb\n", [(1, b"a"), (2, b"b")]),
        (b"a\nb", [(1, b"a"), (2, b"b")]),
        (b"\xef\xbb\xbfa\nb", [(1, b"a"), (2, b"b")]),
        (b"a\r\nb\r\n", [(1, b"a"), (2, b"b")]),
        (b"a\n\n \t\r\nb\n\n", [(1, b"a"), (4, b"b")]),
        (b"a\n\n\nb", [(1, b"a"), (4, b"b")]),
        (b"\n \n\r\n b\nc", [(4, b" b"), (5, b"c")]),
        ("a\u2028b\u2029c\u0085d\x0b\x0ce\n".encode(), [(1, "a\u2028b\u2029c\u0085d\x0b\x0ce".encode())]),
        (b"\xef\xbb\xbf\xef\xbb\xbfa", [(1, b"\xef\xbb\xbfa")]),
    ],
)
def test_lines_end_at_the_newline_byte_only_and_keep_their_numbers(data: bytes, lines: list[tuple[int, bytes]]) -> None:
    assert split(data) == lines


@given(st.binary(max_size=60), st.lists(st.integers(min_value=0, max_value=60), max_size=5))
def test_it_does_not_matter_how_the_bytes_come(data: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    parts = [data[begin:end] for begin, end in itertools.pairwise(places)]
    assert split(*parts) == split(data)


@given(
    st.text(alphabet="a \r\n", max_size=40),
    st.integers(min_value=1, max_value=9),
    st.integers(min_value=1, max_value=9),
)
def test_blank_lines_are_counted_however_they_come(text: str, size: int, most: int) -> None:
    """Many at once are passed over together, one byte at a time they never are."""
    data, found = text.encode(), []
    for step in (size, 1):
        splitter = LineSplitter(most)
        parts = [splitter.feed(data[begin : begin + step]) for begin in range(0, len(data), step)]
        found.append([*itertools.chain(*parts), *splitter.end()])
    assert found[0] == found[1]


def test_long_lines_are_lines() -> None:
    assert split(b"x" * 70_000, b"y" * 70_000, b"\nz") == [(1, b"x" * 70_000 + b"y" * 70_000), (2, b"z")]


def row(**changes: Any) -> bytes:
    data = {"custom_id": "r", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m"}, **changes}
    return json.dumps({name: value for name, value in data.items() if value is not None}).encode()


def test_a_row_is_read() -> None:
    assert parse(Line(7, row())) == Row(7, "r", "/v1/chat/completions", {"model": "m"})


@pytest.mark.parametrize(
    ("data", "code", "says"),
    [
        (b"not json", "invalid_json_line", "not valid JSON"),
        (b'{"custom_id": "r", ', "invalid_json_line", "not valid JSON"),
        (b"null", "invalid_json_line", "no JSON object"),
        (b"[1]", "invalid_json_line", "no JSON object"),
        (b'"row"', "invalid_json_line", "no JSON object"),
        (b'{"custom_id":"r2\xff"}', "invalid_json_line", "not UTF-8 at byte 16"),
        (rb'{"custom_id":"\ud83d"}', "invalid_json_line", "a lone surrogate in a text at character 15 of the line"),
        (rb'{"custom_id":"\udc00"}', "invalid_json_line", "a lone surrogate in a text at character 15 of the line"),
        (b'{"a": nul}', "invalid_json_line", "at character 7 of the line"),
        (b'{"a": NaN}', "invalid_json_line", "not valid JSON"),
        (b'{"a": 1e400}', "invalid_json_line", "infinity"),
        (row(custom_id=None), "invalid_request", "custom_id"),
        (row(custom_id=5), "invalid_request", "custom_id"),
        (row(custom_id=""), "invalid_request", "custom_id"),
        (row(method=None), "invalid_request", "method"),
        (row(method="GET"), "invalid_request", "method"),
        (row(url=None), "invalid_request", "url"),
        (row(url="http://10.0.0.1/v1/chat/completions"), "url_mismatch", "url"),
        (row(url="/v1/unknown"), "url_mismatch", "url"),
        (row(url=["/v1/embeddings"]), "invalid_request", "url"),
        (row(body=None), "invalid_request", "body"),
        (row(body="text"), "invalid_request", "body"),
        (row(body={"stream": True}), "invalid_request", "body.stream"),
    ],
)
def test_other_lines_say_what_is_wrong(data: bytes, code: str, says: str) -> None:
    bad = parse(Line(3, data))
    assert isinstance(bad, BadRow)
    assert (bad.number, bad.code) == (3, code)
    assert says in bad.message


def test_a_bad_row_keeps_its_id_where_it_has_one() -> None:
    bad = parse(Line(3, row(url="/v1/unknown")))
    assert isinstance(bad, BadRow)
    assert bad.custom_id == "r"


BODY = {"id": "chatcmpl-1"}


@pytest.mark.parametrize(
    ("outcome", "response", "error"),
    [
        (Outcome(state=State.COMPLETED, status_code=200, body=BODY), (200, BODY), None),
        (
            Outcome(state=State.FAILED, status_code=400, body=BODY, error=ErrorInfo(code="refused", message="no")),
            (400, BODY),
            None,
        ),
        (Outcome(state=State.EXPIRED, error=ErrorInfo(code="expired", message="late")), None, "batch_expired"),
        (Outcome(state=State.CANCELLED, error=ErrorInfo(code="cancelled", message="x")), None, "batch_cancelled"),
        (Outcome(state=State.FAILED, error=ErrorInfo(code="struck_out", message="x")), None, "struck_out"),
        (Outcome(state=State.FAILED, body=BODY, error=ErrorInfo(code="cut", message="x")), None, "cut"),
        (Outcome(state=State.FAILED), None, "failed"),
    ],
)
def test_output_lines_have_openais_shape(outcome: Outcome, response: tuple[int, Any] | None, error: str | None) -> None:
    written = rows.line("b-7", "r", rows.answered("b-7", outcome))
    assert written.endswith(b"\n")
    line = json.loads(written)
    assert list(line) == ["id", "custom_id", "response", "error"]
    assert (line["id"], line["custom_id"]) == ("batch_req_b-7", "r")
    if response:
        assert line["response"] == {"status_code": response[0], "request_id": "b-7", "body": response[1]}
        assert line["error"] is None
    else:
        assert line["response"] is None
        assert line["error"]["code"] == error
    assert rows.succeeded(outcome) is (outcome.state is State.COMPLETED)
    read = rows.read(written)
    assert read
    assert (read.own_id, read.failed) == (rows.id_of(written), outcome.state is not State.COMPLETED)
    assert rows.line("b-7", "r", read.content) == written


@pytest.mark.parametrize(("number", "generation"), [(1, 0), (12, 3), (10**9, 1)])
def test_a_rows_id_names_its_line_and_generation(number: int, generation: int) -> None:
    assert rows.row_of("batch-1-2", rows.row_id("batch-1-2", number, generation)) == (number, generation)


@pytest.mark.parametrize(
    "own_id", ["", "b", "b-", "b-x", "c-1", "b-1-", "b-1-x", "b--1", "b-1-2-3", "xb-1", "b-²", "b-" + "1" * 20]
)
def test_what_is_no_row_of_the_batch_is_none(own_id: str) -> None:
    assert rows.row_of("b", own_id) is None


@pytest.mark.parametrize(
    "data", [b"", b"{}\n", b"[]", b'{"id":"batch_req_b-7","custom_id":', b'{"id":1,"response":null,"error":null}\n']
)
def test_what_is_no_line_of_ours_is_none(data: bytes) -> None:
    assert rows.read(data) is None


def test_a_summary_counts() -> None:
    summary = BatchSummary("b", seconds=2.0)
    for number in range(1, 101):
        summary.add(
            FinishedRow(number, failed=False, worker="w", tokens_in=1, tokens_out=2, queue_ms=number, ttft_ms=9)
        )
    summary.add(FinishedRow(101, failed=True))
    told = summary.as_json()
    assert (told["rows_out"], told["rows_failed"], told["tokens_in"], told["tokens_out"]) == (101, 1, 100, 200)
    assert told["tokens_per_s"] == 100
    assert told["queue_ms"] == {"p50": 50, "p90": 90, "p99": 99}
    assert told["jobs_by_worker"] == {"w": 100}
    assert Waits().percentile(0.5) == 0


@examples(50)
@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=50), st.floats(0.01, 1))
def test_a_percentile_is_hardly_too_low(times: list[int], share: float) -> None:
    waits = Waits()
    for ms in times:
        waits.add(ms)
    exact = nearest_rank(sorted(times), share)
    assert exact * 0.998 <= waits.percentile(share) <= exact
