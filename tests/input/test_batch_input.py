"""Batch files that are no batch files: packed, cut off, endless, or with lines beyond all bounds."""

import gzip
import json
import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.batch import run_batch
from producer.batch.lines import BadRow, Line, LineSplitter, Row, longest_line, parse
from producer.batch.source import Reader, blocks
from producer.fleet import Fleet
from protocol.errors import BatchInvalid, OutputFailed
from tests.input.values import CANARY, chat, nested, values
from tests.support.fuzz import examples

BAD = b'{"custom_id": "r", "method": "GET", "body": "canary-prompt"}\n'
LIMIT = 70_000


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def errors(fleet: Fleet, source: Path) -> list[str]:
    """The codes of the rows, all of which are refused; nothing of them reaches Redis."""
    target = source.with_suffix(".out")
    summary = await run_batch(fleet, source, target, on_invalid="skip")
    lines = written(target)
    assert summary.rows_in == summary.rows_failed == len(lines)
    assert CANARY not in target.read_text()
    assert [key async for key in fleet.redis.scan_iter("tf:{*")] == []
    return [line["error"]["code"] for line in lines]


async def test_an_input_that_ends_in_gz_is_unpacked(fleet: Fleet, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl.gz"
    source.write_bytes(gzip.compress(BAD * 3))
    assert await errors(fleet, source) == ["invalid_request"] * 3


@pytest.mark.parametrize(
    ("data", "codes"),
    [
        (gzip.compress(BAD * 2, compresslevel=0)[:-30], ["invalid_request", "unreadable_input"]),
        (b"no gzip file", ["unreadable_input"]),
        (gzip.compress(BAD)[:-1], ["invalid_request", "unreadable_input"]),
        (gzip.compress(BAD) + b"rest", ["invalid_request", "unreadable_input"]),
        (gzip.compress(BAD)[:12] + b"\xff" * 30, ["unreadable_input"]),
    ],
    ids=["cut", "text", "no end", "rest", "broken"],
)
async def test_a_broken_gzip_file_ends_with_a_row_that_says_so(
    fleet: Fleet, tmp_path: Path, data: bytes, codes: list[str]
) -> None:
    source = tmp_path / "in.jsonl.gz"
    source.write_bytes(data)
    assert await errors(fleet, source) == codes


@pytest.mark.parametrize("data", [gzip.compress(b""), b"", gzip.compress(b"\n \n")], ids=["empty", "nothing", "blank"])
async def test_a_gzip_file_without_rows_is_refused(fleet: Fleet, tmp_path: Path, data: bytes) -> None:
    source = tmp_path / "in.jsonl.gz"
    source.write_bytes(data)
    with pytest.raises(BatchInvalid) as refused:
        await errors(fleet, source)
    assert [(problem.line, problem.code) for problem in refused.value.problems] == [(1, "empty_file")]
    assert names(tmp_path) == [source.name]


async def test_a_line_beyond_the_limit_is_one_bad_row(fleet: Fleet, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    longest = longest_line(fleet.settings.max_body_bytes)
    source.write_bytes(BAD + b"x" * (longest + 1) + b"\n" + BAD)
    assert await errors(fleet, source) == ["invalid_request", "too_large", "invalid_request"]


def test_a_gzip_bomb_is_never_held_in_memory() -> None:
    bomb = gzip.compress(b"\0" * 30_000_000)
    reader = cast("Reader", gzip.GzipFile(fileobj=BytesIO(bomb)))
    tracemalloc.start()
    try:
        splitter = LineSplitter(LIMIT)
        found = [line for data in blocks(reader) for line in splitter.feed(data)] + splitter.end()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [(line.number, line.code) for line in found if isinstance(line, BadRow)] == [(1, "too_large")]
    assert peak < 10_000_000


class FullDisk(BytesIO):
    """Takes no byte."""

    def write(self, _: object) -> int:
        raise OSError(28, "No space left on device")


async def test_a_full_disk_is_told_in_one_line(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(BAD)
    monkeypatch.setattr("sys.stdout", type("Stdout", (), {"buffer": FullDisk()}))
    with pytest.raises(OutputFailed, match="No space left on device"):
        await run_batch(fleet, source, "-", on_invalid="skip")


@examples(100)
@given(st.lists(st.binary(max_size=12) | st.sampled_from([b"\n", b"\r\n", b"x" * 30]), max_size=8))
def test_no_line_is_longer_than_the_limit_however_the_bytes_come(parts: list[bytes]) -> None:
    splitter, whole = LineSplitter(20), LineSplitter(20)
    found = [line for piece in parts for line in splitter.feed(piece)] + splitter.end()
    assert found == whole.feed(b"".join(parts)) + whole.end()
    lengths = [len(line) for line in b"".join(parts).split(b"\n")]
    assert sum(isinstance(line, BadRow) for line in found) == sum(length > 20 for length in lengths)
    assert all(len(line.data) <= 20 for line in found if isinstance(line, Line))


ROW = {"custom_id": "r", "method": "POST", "url": "/v1/chat/completions", "body": chat()}


@examples(80)
@given(st.dictionaries(st.sampled_from([*ROW, "other"]), values, max_size=4))
def test_any_row_is_read_or_refused(changes: dict[str, Any]) -> None:
    data = json.dumps(ROW | changes).encode(errors="surrogatepass")
    found = parse(Line(1, data))
    if isinstance(found, BadRow):
        assert CANARY not in found.message
    else:
        assert isinstance(found, Row)


def test_a_row_may_be_nested_one_deeper_than_its_body() -> None:
    for levels, kind in ((63, Row), (64, BadRow)):
        data = json.dumps({**ROW, "body": {"x": nested(levels)}}).encode()
        assert isinstance(parse(Line(1, data)), kind)
