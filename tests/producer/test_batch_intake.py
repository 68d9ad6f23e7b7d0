"""What of a batch's input is run, and what is said of the rest; each file of `batches/` holds one kind of trouble."""

import asyncio
import gzip
import io
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from producer.batch.intake import Intake, refusal, take_in
from producer.batch.judge import Judge, Rules
from producer.batch.ledger import Ledger
from producer.batch.lines import LineSplitter
from producer.batch.records import Facts
from producer.batch.source import check_unchanged
from protocol.errors import InputChanged, OutputFailed, Problem, SetupError

BATCHES = Path(__file__).parent / "batches"
RULES = Rules(max_body_bytes=2 * 1024 * 1024)


@dataclass
class Taken:
    """An intake, with all that its ledger says."""

    intake: Intake
    refused: bool
    problems: list[Problem]
    runnable: dict[str, bytes]
    """Bytes of each row that can be run, in the order of sending, by its id."""

    @property
    def said(self) -> list[tuple[int, str, str | None]]:
        return [(problem.line, problem.code, problem.param) for problem in self.problems]


async def taken(path: Path | str, folder: Path, rules: Rules = RULES, limit: int | None = None) -> Taken:
    with Ledger.create(folder / "state") as ledger:
        intake = await take_in(path, ledger, rules, spool=folder / "spool", limit=limit)
        refused = refusal(intake, ledger, skip=False) is not None
        problems = ledger.problems(0, 10_000)
        ledger.plan(group=False, dedup=rules.dedup)
        data = await asyncio.to_thread(Path(intake.readable).read_bytes)
        rows = {str(todo.custom_id): data[todo.start : todo.start + todo.length] for todo in ledger.todo(0, 10_000)}
        assert ledger.counts().rows == intake.rows
        assert len(problems) == intake.bad == ledger.counts().bad
    return Taken(intake, refused, problems, rows)


def row(
    custom_id: str | None = "r", model: str | None = "m", url: str | None = "/v1/chat/completions", **body: Any
) -> str:
    content = (
        {"messages": [{"role": "user", "content": "hello"}]} if url == "/v1/chat/completions" else {"prompt": "hi"}
    )
    full = {"model": model, **content, **body}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": full})


@pytest.mark.parametrize(
    ("name", "runnable"),
    [
        ("bom", ["r1", "r2", "r3", "r4"]),
        ("crlf", ["r1", "r2", "r3", "r4"]),
        ("no-final-newline", ["r1", "r2", "r3", "r4"]),
        ("blank-lines", ["r1", "r2", "r3", "r4"]),
        ("line-separators-inside", ["r1", "r2", "r3"]),
        ("long-prompt", ["r1", "r2", "r3"]),
        ("engine-killers", ["r1", "r2", "r3", "r5", "r4", "r6"]),
    ],
)
async def test_a_good_file_is_taken_whole(name: str, runnable: list[str], tmp_path: Path) -> None:
    found = await taken(BATCHES / f"{name}.jsonl", tmp_path)
    assert not found.refused
    assert list(found.runnable) == runnable
    assert [json.loads(data)["custom_id"] for data in found.runnable.values()] == runnable
    assert (found.intake.endpoint, found.intake.model, found.intake.first) == (
        "/v1/chat/completions",
        "smollm2-135m",
        1,
    )


BODY_FIELDS = ["max_tokens"] * 3 + ["temperature", "n", "messages", "messages.0.role", "model"]


@pytest.mark.parametrize(
    ("name", "problems", "runnable"),
    [
        (
            "duplicate-id",
            [(3, "duplicate_custom_id", "custom_id"), (5, "duplicate_custom_id", "custom_id")],
            "r1 r2 r4",
        ),
        (
            "not-objects",
            [
                (2, "invalid_json_line", None),
                (3, "invalid_json_line", None),
                (4, "invalid_request", "body"),
                (5, "invalid_json_line", None),
            ],
            "r1 r2",
        ),
        ("broken-lines", [(2, "invalid_json_line", None), (4, "invalid_json_line", None)], "r1 r3 r4"),
        (
            "missing-fields",
            [(1, "invalid_request", "method"), (2, "invalid_request", "custom_id"), (3, "invalid_request", "body")],
            "r4",
        ),
        ("wrong-urls", [(line, "url_mismatch", "url") for line in (2, 3, 4)], "r1"),
        ("stream-true", [(2, "invalid_request", "body.stream")], "r1"),
        ("mixed-models", [(2, "model_mismatch", "body.model")], "r1"),
        ("lone-surrogate", [(2, "invalid_json_line", None)], "r1"),
        ("bad-utf8", [(2, "invalid_json_line", None)], "r1 r3"),
    ],
)
async def test_every_bad_line_is_told_in_one_pass_and_the_others_can_be_run(
    name: str, problems: list[tuple[int, str, str | None]], runnable: str, tmp_path: Path
) -> None:
    found = await taken(BATCHES / f"{name}.jsonl", tmp_path)
    assert found.refused
    assert found.said == problems
    assert list(found.runnable) == runnable.split()


async def test_no_line_of_bad_values_can_be_run(tmp_path: Path) -> None:
    found = await taken(BATCHES / "bad-values.jsonl", tmp_path)
    lines = (BATCHES / "bad-values.jsonl").read_bytes().splitlines()
    assert [problem.line for problem in found.problems] == list(range(1, len(lines) + 1))
    assert not found.runnable
    assert (found.intake.endpoint, found.intake.model, found.intake.first) == ("", "", 0)
    assert all(problem.param and problem.param.startswith("body.") for problem in found.problems)


async def test_an_empty_file_is_refused_even_where_bad_lines_are_skipped(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "state") as ledger:
        intake = await take_in(BATCHES / "empty.jsonl", ledger, RULES)
        error = refusal(intake, ledger, skip=True)
    assert error is not None
    assert [problem.code for problem in error.problems] == ["empty_file"]


async def test_messages_name_the_first_line_of_an_id_and_the_place_of_a_byte(tmp_path: Path) -> None:
    duplicates = await taken(BATCHES / "duplicate-id.jsonl", tmp_path)
    assert [problem.message for problem in duplicates.problems] == [
        "custom_id: line 1 has the same",
        "custom_id: line 2 has the same",
    ]
    (utf8,) = (await taken(BATCHES / "bad-utf8.jsonl", tmp_path)).problems
    place = (BATCHES / "bad-utf8.jsonl").read_bytes().split(b"\n")[1].index(b"\xff")
    assert utf8.message == f"not UTF-8 at byte {place} of the line"
    (surrogate,) = (await taken(BATCHES / "lone-surrogate.jsonl", tmp_path)).problems
    assert "surrogate" in surrogate.message


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "in.jsonl"


def write(file: Path, *lines: str) -> None:
    file.write_text("".join(f"{line}\n" for line in lines))


async def test_the_first_row_that_can_be_run_gives_endpoint_and_model(file: Path, tmp_path: Path) -> None:
    chat, bad = "/v1/chat/completions", row("a", "other", "/v1/completions", max_tokens=0)
    write(file, "{}", bad, row("b", "m"), row("c", "other"), row("d", "m", "/v1/completions"))
    found = await taken(file, tmp_path)
    assert (found.intake.endpoint, found.intake.model, found.intake.first) == (chat, "m", 3)
    assert [(line, code) for line, code, _ in found.said][2:] == [(4, "model_mismatch"), (5, "url_mismatch")]
    assert "line 3" in found.problems[2].message
    assert chat in found.problems[3].message


async def test_a_model_or_endpoint_that_is_named_goes_before_what_rows_say(file: Path, tmp_path: Path) -> None:
    write(file, row("a", "x"), row("b", None), row("c", "y", "/v1/completions"))
    rules = Rules(RULES.max_body_bytes, model="m", endpoint="/v1/completions")
    found = await taken(file, tmp_path, rules)
    assert found.said == [(1, "url_mismatch", "url"), (2, "url_mismatch", "url")]
    assert (list(found.runnable), found.intake.model, found.intake.first) == (["c"], "m", 3)
    assert list((await taken(file, tmp_path, Rules(RULES.max_body_bytes, model="m"))).runnable) == ["a", "b"]


async def test_a_bad_line_keeps_its_id_unless_an_earlier_line_has_it(file: Path, tmp_path: Path) -> None:
    write(file, row("a", max_tokens=0), row("b"), row("b", max_tokens=0), row("a"))
    found = await taken(file, tmp_path)
    assert [(problem.code, problem.custom_id) for problem in found.problems] == [
        ("invalid_request", "a"),
        ("invalid_request", None),
        ("duplicate_custom_id", None),
    ]
    assert list(found.runnable) == ["b"]


@pytest.mark.parametrize("seed", [2**63, 2**64, -(2**63) - 1, 10**30, -(10**30)])
async def test_a_seed_outside_int64_is_left_to_the_engine(seed: int, file: Path, tmp_path: Path) -> None:
    write(file, row("a", seed=seed), row("b", seed=seed, max_tokens=0), row("c", seed=True), row("d", seed=0.5))
    found = await taken(file, tmp_path)
    assert list(found.runnable) == ["a"]
    assert [problem.param for problem in found.problems] == ["body.max_tokens", "body.seed", "body.seed"]


async def test_a_wide_integer_elsewhere_is_refused(file: Path, tmp_path: Path) -> None:
    write(file, row("a", user=2**64, seed=1))
    assert (await taken(file, tmp_path)).said == [(1, "invalid_json_line", None)]


async def test_only_equal_bodies_at_temperature_0_have_the_same_digest(file: Path, tmp_path: Path) -> None:
    zero: dict[str, Any] = {"temperature": 0}
    one: dict[str, Any] = {"temperature": 1}
    write(
        file, row("a", **zero), row("b", **zero, seed=1), row("c", **zero), row("d", **one), row("e", **one), row("f")
    )
    rules = Rules(RULES.max_body_bytes, dedup=True)
    assert list((await taken(file, tmp_path, rules)).runnable) == ["a", "b", "d", "e", "f"]
    assert list((await taken(file, tmp_path)).runnable) == ["a", "b", "c", "d", "e", "f"]


async def test_ids_that_differ_behind_a_nul_are_two(file: Path, tmp_path: Path) -> None:
    write(file, row("a\0b"), *[row(f"x{n}", max_tokens=4) for n in range(2_000)], row("a\0c"), row("a\0b"))
    assert (await taken(file, tmp_path)).said == [(2_003, "duplicate_custom_id", "custom_id")]


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
    with pytest.raises(InputChanged):
        check_unchanged(facts, path)
    path.unlink()
    with pytest.raises(SetupError):
        check_unchanged(facts, path)


LINES = st.lists(
    st.one_of(
        st.binary(max_size=30),
        st.sampled_from([row("a").encode(), row("b").encode(), b"", b" ", b"\xef\xbb\xbf", row(None).encode()]),
    ),
    max_size=12,
)


@given(LINES, st.sampled_from([b"\n", b"\r\n"]), st.binary(max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_the_bytes_every_line_is_judged_under_its_physical_number(
    lines: list[bytes], ending: bytes, prefix: bytes
) -> None:
    data = prefix + ending.join(lines)
    splitter, judge = LineSplitter(1_000), Judge(RULES)
    judged = [judge.judge(line) for line in [*splitter.feed(data), *splitter.end()]]
    physical = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    assert [one.place.number for one in judged] == [n for n, line in enumerate(physical, 1) if line.strip()]
    for one in judged:
        assert (one.problem is not None) is one.place.bad
        if not one.place.bad:
            text = data[one.place.start : one.place.start + one.place.length]
            assert json.loads(text)["custom_id"] == one.place.custom_id
            assert physical[one.place.number - 1].removesuffix(b"\r") == text
        else:
            assert one.problem is not None
            assert one.problem.line == one.place.number


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = [
    "model",
    "messages",
    "max_tokens",
    "temperature",
    "seed",
    "n",
    "stop",
    "logit_bias",
    "metadata",
    "stream",
    "prompt",
]


@given(
    st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4),
    st.dictionaries(st.text(max_size=4), VALUES, max_size=2),
)
def test_whatever_the_values_a_row_is_judged_and_its_text_never_repeated(
    body: dict[str, Any], more: dict[str, Any]
) -> None:
    good = {"model": "m", "messages": [{"role": "user", "content": "canary-text"}]}
    data = {"custom_id": "r", "method": "POST", "url": "/v1/chat/completions", "body": {**good, **body}, **more}
    splitter = LineSplitter(1_000_000)
    for line in [*splitter.feed(json.dumps(data).encode()), *splitter.end()]:
        judged = Judge(Rules(1_000, dedup=True)).judge(line)
        assert judged.place.number == 1
        assert "canary" not in (judged.problem.message if judged.problem else "")
