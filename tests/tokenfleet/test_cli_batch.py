"""`tokenfleet batch run` as a process, on an embedded fleet."""

import json
import subprocess
import sys
from pathlib import Path

from tokenfleet.up.commands import FleetOptions
from tokenfleet.up.fleet import EmbeddedFleet


def batch(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return batch_command("run", *arguments)


def batch_command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tokenfleet", "batch", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def rows_alone_on_stdout(source: Path, missing: Path, where: list[str]) -> None:
    """Whatever becomes of a batch that writes its rows there."""
    piped = batch("-i", str(source), "-o", "-", "--json", *where)
    assert sorted(json.loads(line)["custom_id"] for line in piped.stdout.splitlines()) == [f"r{n}" for n in range(10)]
    assert json.loads(piped.stderr.splitlines()[-1])["rows_out"] == 10
    command = [sys.executable, "-m", "tokenfleet", "batch", "run", "-i", str(source), "-o", "-", *where]
    with Path("/dev/full").open("wb") as full:
        failed = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (failed.returncode, failed.stderr.count("can't be written")) == (4, 1)
    bad = missing.with_name("bad.jsonl")
    bad.write_text("no json\n")
    for given in (bad, missing):
        piped = batch("-i", str(given), "-o", "-", "--json", *where)
        assert (piped.returncode, piped.stdout) == (2, "")
        assert json.loads(piped.stderr.splitlines()[-1])["error"]["code"]


async def test_a_file_in_and_a_file_out(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    body = {"model": "demo", "prompt": "Hello", "max_tokens": 4}
    rows = [{"custom_id": f"r{n}", "method": "POST", "url": "/v1/completions", "body": body} for n in range(10)]
    source.write_text("".join(json.dumps(line) + "\n" for line in rows))
    async with EmbeddedFleet(FleetOptions(engine="sim", model="demo", sim_speed=20)) as embedded:
        await embedded.ready(60)
        where = ["--redis-url", embedded.redis_url]
        done = batch("-i", str(source), "-o", str(target), "--limit", "8", "--json", *where)
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout.splitlines()[-1])
        assert (summary["rows_in"], summary["rows_out"], summary["rows_failed"]) == (8, 8, 0)
        assert "rows 8/8" in done.stderr
        ran = {json.loads(line)["custom_id"] for line in target.read_text().splitlines()}
        assert ran == {f"r{n}" for n in range(8)}

        again = batch("-i", str(source), "-o", str(target), *where)
        assert (again.returncode, "exists" in again.stderr) == (2, True)

        rows_alone_on_stdout(source, tmp_path / "none", where)

        source.write_text(json.dumps(rows[0]) + "\nnot json\n{}\n")
        before = target.read_bytes()
        refused = batch("-i", str(source), "-o", str(target), "--overwrite", *where)
        assert refused.returncode == 2
        assert [line.split(":")[1:3] for line in refused.stderr.splitlines() if line.startswith(str(source))] == [
            ["2", " invalid_json_line"],
            ["3", " invalid_request"],
        ]
        assert target.read_bytes() == before
        told = json.loads(batch("-i", str(source), "-o", str(target), "--overwrite", "--json", *where).stdout)
        assert [problem["line"] for problem in told["error"]["problems"]] == [2, 3]

        errors = tmp_path / "err.jsonl"
        files = ["-i", str(source), "-o", str(target), "--errors", str(errors)]
        skipped = batch(*files, "--overwrite", "--on-invalid", "skip", *where)
        assert skipped.returncode == 3, skipped.stderr
        named = [line.split(":")[1:3] for line in skipped.stderr.splitlines() if line.startswith(str(source))]
        assert named == [["2", " invalid_json_line"], ["3", " invalid_request"]]
        assert [json.loads(line)["error"]["code"] for line in errors.read_text().splitlines()] == [
            "invalid_json_line",
            "invalid_request",
        ]
        assert len(target.read_text().splitlines()) == 1

        retried = batch_command("retry-failed", "-o", str(target), "--json", *where)
        assert (retried.returncode, json.loads(retried.stdout)["rows_failed"]) == (3, 2)
        missing = batch("-i", str(tmp_path / "none.jsonl"), "-o", str(target), "--overwrite", "--json", *where)
        assert missing.returncode == 2
        assert json.loads(missing.stdout)["error"]["code"]
