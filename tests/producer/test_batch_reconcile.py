"""The proof that each line of an input has exactly one line of output, and what it finds where there is none."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from producer.batch.reconcile import Finding, Reconciler, Report
from protocol.errors import InvalidRequest, SetupError
from tests.producer.intakes import row, write


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Input, output, errors: all are there, and empty."""
    paths = tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "err.jsonl"
    for path in paths:
        path.touch()
    return paths


def answer(custom_id: str | None, number: int = 1) -> str:
    body: dict[str, Any] = {"status_code": 200, "request_id": "q", "body": {}}
    return json.dumps({"id": f"batch_req_b-{number}", "custom_id": custom_id, "response": body, "error": None})


def error(custom_id: str | None, number: int) -> str:
    told = {"code": "c", "message": f"line {number}: no"}
    return json.dumps({"id": f"batch_req_b-{number}", "custom_id": custom_id, "response": None, "error": told})


def test_only_the_first_rows_count_where_a_limit_was(files: tuple[Path, Path, Path]) -> None:
    write(files[0], *("" if n == 1 else row(f"r{n}") for n in range(6)))
    write(files[1], answer("r0"), answer("r2"))
    for limit, missing, foreign in ((2, 0, 0), (3, 1, 0), (1, 0, 1), (None, 3, 0), (9, 3, 0)):
        reconciler = Reconciler(files[0], files[1:], limit)
        list(reconciler.findings())
        assert (reconciler.report.missing, reconciler.report.foreign) == (missing, foreign), limit


def found(*paths: Path) -> tuple[Report, list[tuple[str, str | None, int | None, list[tuple[str, int]]]]]:
    reconciler = Reconciler(paths[0], paths[1:])
    findings = [brief(finding) for finding in reconciler.findings()]
    return reconciler.report, findings


def brief(finding: Finding) -> tuple[str, str | None, int | None, list[tuple[str, int]]]:
    places = [(Path(place.file).name.partition(".")[0], place.line) for place in finding.places]
    return finding.kind, finding.custom_id, finding.input_line, places


def test_a_batch_whose_rows_have_one_line_each_is_proven(files: tuple[Path, Path, Path]) -> None:
    given, out, err = files
    write(given, "\ufeff" + row("a"), "", row("b"), " ", "torn", row("c"))
    write(out, answer("c", 6), "", answer("a", 1))
    write(err, error("b", 3), error(None, 5))
    report, findings = found(given, out, err)
    assert (report.proven, findings) == (True, [])
    zeros = dict.fromkeys(("missing", "doubled", "foreign", "unreadable"), 0)
    assert report.as_json() == {"proven": True, "rows": 4, "lines": 4, **zeros}


def test_missing_doubled_and_foreign_rows_are_named_with_their_lines(files: tuple[Path, Path, Path]) -> None:
    given, out, err = files
    write(given, row("a"), row("b"), "", row("c"), "bad", "worse")
    write(out, answer("a"), answer("x"), answer("c"), error(None, 5), error(None, 77))
    write(err, error("c", 4), error(None, 5))
    report, findings = found(given, out, err)
    assert sorted(findings, key=str) == [
        ("doubled", "c", 4, [("out", 3), ("err", 1)]),
        ("doubled", None, 5, [("out", 4), ("err", 2)]),
        ("foreign", "x", None, [("out", 2)]),
        ("foreign", None, None, [("out", 5)]),
        ("missing", "b", 2, []),
        ("missing", None, 6, []),
    ]
    assert not report.proven
    assert (report.missing, report.doubled, report.foreign, report.unreadable) == (2, 2, 2, 0)


@pytest.mark.parametrize(
    "bad",
    [answer("b")[:-9], "{}", "null", "[]", '{"custom_id": "b", "response": null, "error": null}', "\udcff"],
)
def test_a_line_that_is_no_answer_proves_nothing(bad: str, files: tuple[Path, Path, Path]) -> None:
    given, out, _ = files
    write(given, row("a"), row("b"))
    out.write_bytes(f"{answer('a')}\n{bad}".encode(errors="surrogateescape"))
    report, findings = found(given, out)
    assert findings == [("unreadable", None, None, [("out", 2)]), ("missing", "b", 2, [])]
    assert not report.proven


def test_a_last_line_without_its_newline_counts_when_it_is_whole(files: tuple[Path, Path, Path]) -> None:
    given, out, _ = files
    given.write_text(row("a"))
    out.write_text(answer("a"))
    assert found(given, out)[0].proven


def test_lines_that_were_skipped_as_duplicates_are_known_by_their_numbers(files: tuple[Path, Path, Path]) -> None:
    given, out, err = files
    write(given, row("a"), row("a"), row("b", max_tokens=0))
    write(out, answer("a"))
    write(err, error(None, 2), error("b", 3))
    assert found(given, out, err)[0].proven
    write(out, answer("a", 1), answer("a", 1))
    assert found(given, out, err)[1] == [("doubled", "a", 1, [("out", 1), ("out", 2)])]
    write(out)
    assert found(given, out, err)[1] == [("missing", "a", 1, [])]
    write(out, answer("a", 1), answer("a", 1))
    write(err, error("b", 3))
    assert [kind for kind, *_ in found(given, out, err)[1]] == ["missing", "doubled"]


def test_equal_ids_that_others_answer_under_different_names_are_told_apart(files: tuple[Path, Path, Path]) -> None:
    given, out, _ = files
    write(given, row("a"), row("a"))
    write(out, answer("a", 1), answer("a", 2))
    assert found(given, out)[0].proven


def test_packed_files_are_read_and_a_torn_one_proves_nothing(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    given, _, _ = files
    packed = tmp_path / "out.jsonl.gz"
    write(given, row("a"))
    data = gzip.compress((answer("a") + "\n").encode())
    packed.write_bytes(data)
    assert found(given, packed)[0].proven
    packed.write_bytes(data[:-5])
    report, findings = found(given, packed)
    assert (report.proven, findings[0][0]) == (False, "unreadable")


def test_only_the_first_places_of_an_id_are_named_and_all_are_counted(files: tuple[Path, Path, Path]) -> None:
    given, out, _ = files
    write(given, row("a"))
    write(out, *[answer("a", 1)] * 1_000)
    report, ((_, _, _, places),) = found(given, out)
    assert (len(places), report.doubled) == (20, 999)


def test_an_empty_input_with_an_empty_output_is_proven(files: tuple[Path, Path, Path]) -> None:
    assert found(*files)[0].proven


def test_files_that_are_the_same_or_not_there_are_refused(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    given, out, _ = files
    for same in ((given, given), (given, out, out)):
        with pytest.raises(InvalidRequest, match="the same"):
            found(*same)
    with pytest.raises(SetupError, match="can't be opened"):
        found(given, tmp_path / "none")


COPIES = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=12)


@given(COPIES, st.integers(0, 2), st.randoms())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_it_is_proven_exactly_when_each_row_has_one_line(
    files: tuple[Path, Path, Path], copies: list[tuple[int, bool]], foreign: int, random: Any
) -> None:
    given, out, err = files
    write(given, *(row(f"r{n}") if readable else "bad" for n, (_, readable) in enumerate(copies)))
    lines = [answer(f"x{n}") for n in range(foreign)]
    for n, (count, readable) in enumerate(copies):
        lines += [answer(f"r{n}", n + 1) if readable else error(None, n + 1)] * count
    random.shuffle(lines)
    write(out, *lines[::2])
    write(err, *lines[1::2])
    report, findings = found(given, out, err)
    assert report.proven is (foreign == 0 and all(count == 1 for count, _ in copies))
    assert report.proven is not bool(findings)
    assert report.missing == sum(count == 0 for count, _ in copies)
    assert report.doubled == sum(max(0, count - 1) for count, _ in copies)
    assert report.foreign == foreign
