"""Where a batch's input comes from: files, packed ones, pipes; broken off, changed, without an end."""

import asyncio
import gzip
import io
import json
import os
import socket
import sys
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import BinaryIO, cast

import psutil
import pytest

from producer.batch.intake import Intake, take_in
from producer.batch.ledger import Ledger
from producer.batch.records import Facts
from producer.batch.source import Patient, check_unchanged
from protocol.errors import InputChanged, OutputFailed, SetupError
from tests.producer.intakes import RULES, row, taken, write


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "in.jsonl"


@pytest.mark.parametrize("limit", [0, 1, 2, 9])
async def test_a_limit_takes_the_first_rows(limit: int, file: Path, tmp_path: Path) -> None:
    write(file, row("a"), "", row("b"), "bad")
    assert (await taken(file, tmp_path, limit=limit)).intake.rows == min(limit, 3)


async def test_packed_input_is_spooled(file: Path, tmp_path: Path) -> None:
    packed = tmp_path / "in.jsonl.gz"
    packed.write_bytes(gzip.compress((row("a") + "\n" + row("b")).encode()))
    found = await taken(packed, tmp_path)
    assert found.intake.readable == str(tmp_path / "spool")
    assert [json.loads(data)["custom_id"] for data in found.runnable.values()] == ["a", "b"]


async def test_packed_members_are_one_input(tmp_path: Path) -> None:
    """As `cat a.gz b.gz`; a line may go over their border."""
    packed, lines = tmp_path / "in.jsonl.gz", f"{row('a')}\n{row('b')}\n".encode()
    packed.write_bytes(gzip.compress(lines[:50]) + gzip.compress(lines[50:]) + gzip.compress(b""))
    assert list((await taken(packed, tmp_path)).runnable) == ["a", "b"]


async def test_a_named_pipe_is_spooled(tmp_path: Path) -> None:
    pipe = tmp_path / "in.jsonl"
    os.mkfifo(pipe)
    writing = asyncio.create_task(asyncio.to_thread(pipe.write_text, f"{row('a')}\n{row('b')}"))
    found = await taken(pipe, tmp_path)
    await writing
    assert list(found.runnable) == ["a", "b"]
    assert found.intake.readable == str(tmp_path / "spool")


async def test_a_folder_is_no_input(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "state") as ledger:
        held = psutil.Process().num_fds()
        with pytest.raises(SetupError, match="Is a directory"):
            await take_in(tmp_path, ledger, RULES)
        assert psutil.Process().num_fds() == held


def test_an_answer_over_http_is_never_waited_for_twice() -> None:
    """Its end may lie in its own buffer, while its socket, kept for the next request, is silent."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}\n")
        answer = HTTPResponse(ours)
        answer.begin()
        assert Patient(cast("BinaryIO", answer)).read(10) == b"{}\n"


@pytest.mark.parametrize(("cut", "says"), [(-9, "breaks off"), (None, "no gzip file")])
async def test_a_packed_input_that_can_not_be_read_on_has_a_last_bad_line(
    cut: int | None, says: str, tmp_path: Path
) -> None:
    packed = tmp_path / "in.jsonl.gz"
    data = "".join(row(f"r{n}") + "\n" for n in range(50)).encode()
    packed.write_bytes(gzip.compress(data)[:cut] if cut else data)
    found = await taken(packed, tmp_path)
    assert found.problems[-1].code == "unreadable_input"
    assert says in found.problems[-1].message


async def test_stdin_is_spooled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(row("a").encode())))
    found = await taken("-", tmp_path)
    assert list(found.runnable) == ["a"]
    assert (found.intake.size, found.intake.mtime_ns) == (0, 0)


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Its end to write to; stdin is the other one."""
    out, into = os.pipe()
    with os.fdopen(out, "r") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield into
    os.close(into)


async def test_breaking_off_does_not_wait_for_a_silent_pipe(pipe: int, tmp_path: Path) -> None:
    os.write(pipe, row("a").encode() + b"\n")
    with Ledger.create(tmp_path / "state") as ledger:
        async with asyncio.timeout(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await take_in("-", ledger, RULES, spool=tmp_path / "spool")
    assert (tmp_path / "spool").read_text().startswith('{"custom_id"')


@pytest.mark.parametrize("written_to", [False, True], ids=["nobody writes to it", "silent"])
@pytest.mark.parametrize("name", ["in.jsonl", "in.jsonl.gz"])
async def test_breaking_off_does_not_wait_for_a_named_pipe(name: str, written_to: bool, tmp_path: Path) -> None:
    """Neither to open it nor to unpack what comes."""
    pipe = tmp_path / name
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR) if written_to else None
    with Ledger.create(tmp_path / "state") as ledger:
        async with asyncio.timeout(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await take_in(pipe, ledger, RULES, spool=tmp_path / "spool")
    if writer is not None:
        os.close(writer)


async def test_the_loop_goes_on_meanwhile(file: Path, tmp_path: Path) -> None:
    write(file, *(row(f"r{n}") for n in range(3_000)))
    turns = 0
    with Ledger.create(tmp_path / "state") as ledger:
        taking = asyncio.create_task(take_in(file, ledger, RULES))
        while not taking.done():
            turns += 1
            await asyncio.sleep(0)
        assert taking.result().rows == 3_000
    assert turns > 5


async def test_a_full_disk_under_the_spool_is_told(pipe: int, tmp_path: Path) -> None:
    os.write(pipe, row("a").encode() + b"\n")
    with Ledger.create(tmp_path / "state") as ledger, pytest.raises(OutputFailed, match="No space"):
        await take_in("-", ledger, RULES, spool=Path("/dev/full"))


async def test_an_input_that_is_not_there_is_told(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "state") as ledger, pytest.raises(SetupError, match="can't be opened"):
        await take_in(tmp_path / "none", ledger, RULES)


def facts_of(intake: Intake, path: Path) -> Facts:
    same = {name: getattr(intake, name) for name in ("readable", "size", "mtime_ns", "sha256")}
    return Facts(batch_id="b", source=str(path), **same)


@pytest.mark.parametrize("packed", [False, True])
async def test_an_input_that_changed_is_noticed(packed: bool, tmp_path: Path) -> None:
    path, content = tmp_path / ("in.gz" if packed else "in"), f"{row('a')}\n{row('b')}\n".encode()

    def put(data: bytes) -> None:
        path.write_bytes(gzip.compress(data) if packed else data)

    put(content)
    facts = facts_of((await taken(path, tmp_path, limit=1)).intake, path)
    check_unchanged(facts, path)
    put(content)  # written anew, with the same content
    check_unchanged(facts, path)
    put(content.replace(b'"b"', b'"c"'))
    with pytest.raises(InputChanged, match="is not what it was"):
        check_unchanged(facts, path)
    other = tmp_path / "other"
    other.write_bytes(b"{}")
    with pytest.raises(InputChanged, match=f"{other} is another file than the batch's input, {path}"):
        check_unchanged(facts, other)
    path.unlink()
    with pytest.raises(SetupError):
        check_unchanged(facts, path)


async def test_an_input_that_is_written_to_while_it_is_read_is_told(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, row("a"))
    stamps = iter([(1, 1), (2, 2)])
    monkeypatch.setattr("producer.batch.source.stamp", lambda _: next(stamps))
    with Ledger.create(tmp_path / "state") as ledger, pytest.raises(InputChanged, match="while it was read"):
        await take_in(file, ledger, RULES)


async def test_rows_can_not_be_read_once_their_spool_is_gone(tmp_path: Path) -> None:
    packed = tmp_path / "in.gz"
    packed.write_bytes(gzip.compress(row("a").encode()))
    facts = facts_of((await taken(packed, tmp_path)).intake, packed)
    check_unchanged(facts, packed)
    (tmp_path / "spool").unlink()
    with pytest.raises(SetupError, match="not there"):
        check_unchanged(facts, packed)


async def test_a_closed_stdin_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with Ledger.create(tmp_path / "state") as ledger, pytest.raises(SetupError, match="stdin is closed"):
        await take_in("-", ledger, RULES)
