"""What a person is told to do about rows that were not answered."""

import click
import pytest

from producer.batch import BatchSummary
from producer.batch.tally import BatchEnd
from tokenfleet.batch_progress import advice
from tokenfleet.cli.batch.running import end


def summary(
    bad: int = 0, failed: int = 0, refused: int = 0, out: int = 10, state: BatchEnd = BatchEnd.COMPLETED
) -> BatchSummary:
    return BatchSummary("b", state, rows_in=10, rows_bad=bad, rows_out=out, rows_failed=failed, rows_refused=refused)


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (summary(failed=2), "2 rows failed: `tokenfleet batch retry-failed -o out.jsonl` runs failed rows again"),
        (summary(bad=2, failed=3), "1 row failed: `tokenfleet batch retry-failed"),
        (summary(bad=1, failed=3, refused=2), "2 rows failed and would fail again: their lines say why"),
        (summary(failed=3, refused=2), "3 rows failed: `tokenfleet batch retry-failed -o out.jsonl` runs failed rows"),
        (summary(bad=2, failed=2), "2 lines are no requests: the error lines say why"),
        (summary(bad=1, failed=1), "1 line is no request: the error lines say why"),
        (summary(out=4, state=BatchEnd.EXPIRED), "6 rows never ended: the same command with --resume --deadline 6h"),
    ],
)
def test_what_can_be_done(of: BatchSummary, words: str) -> None:
    assert advice(of, "out.jsonl").startswith(words)


def test_rows_to_be_mended_are_taken_out_by_a_command() -> None:
    for of in (summary(failed=2, refused=2), summary(bad=2, failed=2)):
        assert "`tokenfleet batch reconcile IN out.jsonl [ERR] --failed-rows FILE` takes them out" in advice(
            of, "out.jsonl"
        )


@pytest.mark.parametrize(
    ("given", "errors", "files"),
    [
        ("in.jsonl", None, "in.jsonl 'my out'"),
        ("a b", "it's", "'a b' 'my out' 'it'\"'\"'s'"),
        ("-", "-", "IN 'my out' [ERR]"),
    ],
)
def test_a_command_names_the_files_as_a_shell_takes_them(
    capsys: pytest.CaptureFixture[str], given: str, errors: str | None, files: str
) -> None:
    with click.Context(click.Command("run")):
        end(summary(bad=2, failed=2), "my out", given, errors)
    assert f"`tokenfleet batch reconcile {files} --failed-rows FILE`" in capsys.readouterr().err
