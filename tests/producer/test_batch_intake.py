"""What of a batch's input is run, and what is said of the rest; each file of `batches/` holds one kind of trouble."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from producer.batch.intake import refusal, take_in
from producer.batch.judge import Rules
from producer.batch.ledger import Ledger
from tests.producer.intakes import BATCHES, RULES, row, taken, write


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "in.jsonl"


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
    assert (found.intake.endpoint, found.intake.model) == ("/v1/chat/completions", "smollm2-135m")


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
    assert (found.intake.endpoint, found.intake.model) == ("", "")
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
    assert "a lone surrogate" in surrogate.message


async def test_the_first_row_that_can_be_run_gives_endpoint_and_model(file: Path, tmp_path: Path) -> None:
    chat, bad = "/v1/chat/completions", row("a", "other", "/v1/completions", max_tokens=0)
    write(file, "{}", bad, row("b", "m"), row("c", "other"), row("d", "m", "/v1/completions"))
    found = await taken(file, tmp_path)
    assert (found.intake.endpoint, found.intake.model) == (chat, "m")
    assert [(line, code) for line, code, _ in found.said][2:] == [(4, "model_mismatch"), (5, "url_mismatch")]
    assert "line 3" in found.problems[2].message
    assert chat in found.problems[3].message


async def test_a_model_or_endpoint_that_is_named_goes_before_what_rows_say(file: Path, tmp_path: Path) -> None:
    write(file, row("a", "x"), row("b", None), row("c", "y", "/v1/completions"))
    rules = Rules(RULES.max_body_bytes, model="m", endpoint="/v1/completions")
    found = await taken(file, tmp_path, rules)
    assert found.said == [(1, "url_mismatch", "url"), (2, "url_mismatch", "url")]
    assert (list(found.runnable), found.intake.model) == (["c"], "m")
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


@pytest.mark.parametrize("between", [0, 3_000])
async def test_a_duplicate_of_a_bad_line_is_not_what_the_batch_is_for(between: int, file: Path, tmp_path: Path) -> None:
    """It can't be run itself. The many lines between bring it into another block than the first."""
    bad = [row(f"x{n}", max_tokens=0, user="u" * 100) for n in range(between)]
    write(file, row("a", max_tokens=0), *bad, row("a", "other", "/v1/completions"), row("b"), row("c"))
    found = await taken(file, tmp_path)
    assert (found.intake.endpoint, found.intake.model) == ("/v1/chat/completions", "m")
    assert (list(found.runnable), found.problems[-1].code) == (["b", "c"], "duplicate_custom_id")


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


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
async def test_each_line_of_another_encoding_is_told(file: Path, tmp_path: Path, encoding: str) -> None:
    await asyncio.to_thread(file.write_text, f"{row('a')}\n{row('b')}", encoding)
    found = await taken(file, tmp_path)
    assert [(line, code) for line, code, _ in found.said] == [(1, "invalid_json_line"), (2, "invalid_json_line")]
    assert not found.runnable


async def test_what_stands_before_and_behind_rows_is_a_bad_line_and_harms_no_other(file: Path, tmp_path: Path) -> None:
    write(
        file, "// rows", f"  {row('a')} ", "[", f"{row('b')},", "]", "\0", f"\ufeff{row('c')}", row("d") * 2, row("e")
    )
    found = await taken(file, tmp_path)
    assert [(line, code) for line, code, _ in found.said] == [(n, "invalid_json_line") for n in (1, 3, 4, 5, 6, 7, 8)]
    assert list(found.runnable) == ["a", "e"]


async def test_models_that_nobody_registered_are_told_with_all_else(file: Path, tmp_path: Path) -> None:
    """The batch's model is the first that is served."""
    write(file, row("a", "x"), "{}", row("b", "n"), row("c", "x"), row("d", "m"), row("e", "n"))
    found = await taken(file, tmp_path, replace(RULES, served={"m", "n"}))
    assert [(line, code) for line, code, _ in found.said] == [
        (1, "unknown_model"),
        (2, "invalid_request"),
        (4, "model_mismatch"),
        (5, "model_mismatch"),
    ]
    assert (found.intake.model, found.intake.unserved, list(found.runnable)) == ("n", 1, ["b", "e"])


@pytest.mark.parametrize(("lines", "refused"), [(["x", "m"], False), (["x", "x"], True)])
async def test_skipping_models_that_nobody_serves_leaves_the_others(
    file: Path, tmp_path: Path, lines: list[str], refused: bool
) -> None:
    """Where none is served, the workers may only not have started yet."""
    write(file, *(row(f"r{n}", model) for n, model in enumerate(lines)))
    with Ledger.create(tmp_path / "state") as ledger:
        intake = await take_in(file, ledger, replace(RULES, served={"m"}))
        assert (refusal(intake, ledger, skip=True) is not None) is refused


async def test_a_line_or_body_that_is_too_long_is_told_and_the_next_one_is_read(file: Path, tmp_path: Path) -> None:
    write(file, row("a", user="x" * 500), row("b"), row("c", user="x" * 100_000), row("d"))
    found = await taken(file, tmp_path, Rules(max_body_bytes=300))
    assert found.said == [(1, "too_large", "body"), (3, "too_large", None)]
    assert [json.loads(data)["custom_id"] for data in found.runnable.values()] == ["b", "d"]
