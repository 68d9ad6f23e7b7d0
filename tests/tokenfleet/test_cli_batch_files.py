"""`tokenfleet batch validate` and `reconcile`: what they print, and how they end."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Ran
from redis import Redis

from protocol.call import run_sync
from protocol.errors import BatchInvalid, Problem
from protocol.functions import register
from protocol.messages import ModelRecord
from tests.support.builders import SHARD
from tokenfleet.cli import main as cli
from tokenfleet.cli.exits import Exit


def row(custom_id: str, model: str = "m") -> str:
    body = {"model": model, "prompt": "hi"}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/completions", "body": body})


@pytest.fixture
def given(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text(f"{row('a')}\n\n{row('b')}\n")
    return path


def ran(*arguments: str | Path, stdin: str = "") -> Ran:
    return CliRunner().invoke(cli, ["batch", *map(str, arguments)], input=stdin)


def validated(*arguments: str | Path, stdin: str = "") -> Ran:
    return ran("validate", "--offline", "-i", *arguments, stdin=stdin)


def objects(result: Ran) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_valid_file_is_told_in_a_line(given: Path) -> None:
    result = validated(given)
    assert (result.exit_code, result.stdout) == (Exit.CLEAN, "valid: 2 rows for /v1/completions\n")


def test_every_bad_line_stands_with_its_file_line_code_and_message(given: Path) -> None:
    given.write_text(f"{row('a')}\n\nnot json\n{row('a')}\n")
    result = validated(given)
    assert result.exit_code == Exit.INVALID
    first, second, last = result.stdout.splitlines()
    assert first.startswith(f"{given}:3: invalid_json_line: not valid JSON")
    assert second == f"{given}:4: duplicate_custom_id: custom_id: line 1 has the same"
    assert last == "not valid: 3 rows, 2 problems"


def test_every_line_of_many_is_told(given: Path) -> None:
    given.write_text("bad\n" * 1_234)
    *told, last = validated(given).stdout.splitlines()
    assert [line.removeprefix(f"{given}:").partition(":")[0] for line in told] == [str(n) for n in range(1, 1_235)]
    assert last == "not valid: 1234 rows, 1234 problems"
    *problems, figures = objects(validated(given, "--json"))
    assert [problem["line"] for problem in problems] == list(range(1, 1_235))
    assert set(problems[0]) == {"line", "code", "message", "param", "custom_id"}
    assert figures == {"valid": False, "rows": 1_234, "bad": 1_234, "endpoint": "", "model": ""}


def test_an_empty_file_is_told(given: Path) -> None:
    given.write_text("\n \n")
    result = validated(given)
    assert (result.exit_code, "empty_file" in result.stdout) == (Exit.INVALID, True)


def test_stdin_is_validated_and_a_model_can_be_named(given: Path) -> None:
    text = f"{row('a', 'x')}\n{row('b', 'y')}\n"
    assert validated("-", stdin=text).exit_code == Exit.INVALID
    assert validated("-", "--model", "m", stdin=text).exit_code == Exit.CLEAN


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    result = validated(tmp_path / "none", "--json")
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (Exit.INVALID, "setup_error")


def test_the_fleet_is_asked_for_the_model(given: Path, valkey_url: str) -> None:
    where = ("--redis-url", valkey_url)
    with Redis.from_url(valkey_url) as client:
        run_sync(client, register("m", ModelRecord(pool=SHARD.pool)))
    assert ran("validate", "-i", given, *where).exit_code == Exit.CLEAN
    given.write_text(f"{row('a', 'other')}\nbad\n{row('b')}\n{row('c', 'more')}\n")
    result = ran("validate", "-i", given, *where)
    assert result.exit_code == Exit.INVALID
    first, second, third, _ = result.stdout.splitlines()
    assert first == f"{given}:1: unknown_model: body.model: no worker ever registered other; known: m"
    assert "--model" in result.stderr
    assert second.startswith(f"{given}:2: invalid_json_line: ")
    assert third == f"{given}:4: model_mismatch: body.model: line 3 names another"


def test_a_model_that_nobody_serves_is_told_once(given: Path, tmp_path: Path, valkey_url: str) -> None:
    run = ("run", "-o", tmp_path / "out", "--redis-url", valkey_url, "-i")
    given.write_text("".join(f"{row(f'r{n}')}\n" for n in range(12)))
    told = ran(*run, given, "--model", "typo")
    assert told.exit_code == Exit.INVALID
    first, rest, last, hint = told.stderr.splitlines()
    assert first == f"{given}:1: unknown_model: body.model: no worker ever registered typo; nor any other"
    assert "--model" in hint
    assert json.loads(ran(*run, given, "--model", "typo", "--json").stdout)["error"]["hint"] == hint
    assert rest.startswith("… and 11 more: ")
    assert "12 lines of the input can't be run" in last
    given.write_text("bad\n" * 2 + "".join(f"{row(f'r{n}')}\n" for n in range(2)))
    assert len(ran(*run, given, "--model", "typo").stderr.splitlines()) == 6


def test_a_refused_file_says_what_can_be_done(given: Path, tmp_path: Path, valkey_url: str) -> None:
    run = ("run", "-i", given, "-o", tmp_path / "out", "--redis-url", valkey_url, "--json", "--model", "m")
    given.write_text("bad\n")
    hint = json.loads(ran(*run).stdout)["error"]["hint"]
    assert "--on-invalid skip" in hint
    assert "`tokenfleet batch run --help` shows a row" in hint
    given.write_text("\n")
    error = json.loads(ran(*run).stdout)["error"]
    assert (error["message"], error["hint"]) == ("the input has no rows; nothing was run", "")
    assert "--model M" in BatchInvalid([Problem(2, "model_mismatch", "body.model: line 1 names another")]).hint


def test_without_redis_the_lines_are_told_all_the_same(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENFLEET_REDIS_PATIENCE_S", "0.1")
    given.write_text(f"{row('a')}\nbad\n")
    result = ran("validate", "-i", given, "--redis-url", "redis://127.0.0.1:1")
    assert result.exit_code == Exit.UNAVAILABLE
    assert f"{given}:2: invalid_json_line" in result.stdout
    assert "no Redis answers" in result.stderr
    assert "--offline" in result.stderr


def test_a_file_that_is_named_twice_is_told_by_its_parts(given: Path, tmp_path: Path, valkey_url: str) -> None:
    out = tmp_path / "out"
    for arguments, parts in (
        ((given, "-o", out, "--errors", out), "the output and the error file"),
        ((given, "-o", given), "the input and the output"),
        ((given, "-o", out, "--errors", tmp_path / "out.state"), "the error file and kept beside the output"),
    ):
        result = ran("run", "-i", *arguments, "--redis-url", valkey_url)
        assert (result.exit_code, f"would be {parts}" in result.stderr) == (Exit.INVALID, True), result.stderr


def answers(path: Path, *custom_ids: str) -> Path:
    response = {"status_code": 200, "request_id": "q", "body": {}}
    lines = [{"id": f"i{n}", "custom_id": one, "response": response, "error": None} for n, one in enumerate(custom_ids)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_complete_batch_is_proven(given: Path, tmp_path: Path) -> None:
    out, err = answers(tmp_path / "out", "b"), answers(tmp_path / "err", "a")
    result = ran("reconcile", given, out, err)
    assert (result.exit_code, result.stdout) == (Exit.CLEAN, "proven: each of 2 rows has exactly one line\n")
    (last,) = objects(ran("reconcile", given, out, err, "--json"))
    assert (last["proven"], last["rows"], last["lines"]) == (True, 2, 2)


def test_what_is_not_proven_is_named(given: Path, tmp_path: Path) -> None:
    out = answers(tmp_path / "out", "b", "\x1b[2Jx", "b")
    result = ran("reconcile", given, out)
    assert result.exit_code == Exit.FAILED
    assert result.stdout.splitlines() == [
        f"missing: {given}:1 custom_id a",
        f"doubled: {given}:3 custom_id b, {out}:1, {out}:3",
        f"foreign: custom_id \\x1b[2Jx, {out}:2",
        "not proven: 2 rows, 3 lines; 1 missing, 1 doubled, 1 foreign, 0 unreadable",
    ]
    first, *_, last = objects(ran("reconcile", given, out, "--json"))
    assert first == {"kind": "missing", "custom_id": "a", "input_line": 1, "places": [], "why": ""}
    assert last["proven"] is False


def test_failed_rows_are_taken_out(given: Path, tmp_path: Path) -> None:
    out, err, failed = answers(tmp_path / "out", "b"), tmp_path / "err", tmp_path / "again.jsonl"
    error = {"code": "batch_expired", "message": "line 1: no"}
    err.write_text(json.dumps({"id": "i", "custom_id": "a", "response": None, "error": error}) + "\n")
    result = ran("reconcile", given, out, err, "--failed-rows", failed)
    assert (result.exit_code, result.stdout.startswith("proven")) == (Exit.CLEAN, True)
    assert result.stderr == f"1 row that failed stands in {failed}: mend it, and run it to another output\n"
    assert failed.read_text() == row("a") + "\n"
    for target, why in ((given, "exists"), (tmp_path / "none" / "f", "can't be opened: No such file or directory")):
        refused = ran("reconcile", given, out, err, "--failed-rows", target)
        assert (refused.exit_code, f"error: {target} {why}" in refused.stderr) == (Exit.INVALID, True)
    none = ran("reconcile", given, answers(tmp_path / "all", "a", "b"), "--failed-rows", tmp_path / "none")
    assert none.stderr == f"no row failed: {tmp_path / 'none'} is empty\n"


def test_the_limit_of_the_run_counts(given: Path, tmp_path: Path) -> None:
    out = answers(tmp_path / "out", "a")
    assert ran("reconcile", given, out).exit_code == Exit.FAILED
    assert ran("reconcile", given, out, "--limit", "1").exit_code == Exit.CLEAN


def test_a_person_sees_the_first_hundred_findings(given: Path, tmp_path: Path) -> None:
    told = ran("reconcile", given, answers(tmp_path / "out", "a", "b", *(f"x{n}" for n in range(150)))).stdout
    assert (len(told.splitlines()), told.splitlines()[-2]) == (102, "… and more")


def test_wrong_usage_ends_with_2(given: Path, tmp_path: Path) -> None:
    assert ran("reconcile", given, tmp_path / "none").exit_code == Exit.INVALID
    assert ran("reconcile", given, given).exit_code == Exit.INVALID
    assert ran("reconcile", given).exit_code == Exit.INVALID


def test_who_checks_many_lines_is_told_how_many(
    given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, valkey_url: str
) -> None:
    monkeypatch.setattr("tokenfleet.batch_progress.PLAIN_EVERY_S", 0)
    assert "checked 2 lines\n" in ran("validate", "-i", given, "--offline").stderr
    (tmp_path / "out").write_text('{"id": "1", "custom_id": "a", "error": {}}\n')
    assert ran("reconcile", given, tmp_path / "out").stderr.splitlines()[-1] == "checked 3 lines"
    given.write_text("bad\n")
    told = ran("run", "-i", given, "-o", tmp_path / "new", "--redis-url", valkey_url).stderr
    assert told.startswith("checked 1 lines\n")
