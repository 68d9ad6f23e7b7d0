"""`tokenfleet batch run` as a process, on an embedded fleet."""

import json
import subprocess
import sys
from pathlib import Path

from tokenfleet.up.commands import FleetOptions
from tokenfleet.up.fleet import EmbeddedFleet


def batch(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tokenfleet", "batch", "run", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


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
        assert {json.loads(line)["custom_id"] for line in target.read_text().splitlines()} == {
            f"r{n}" for n in range(8)
        }

        source.write_text("not json\n")
        failed = batch("-i", str(source), "-o", str(target), *where)
        assert failed.returncode == 3
        missing = batch("-i", str(tmp_path / "none.jsonl"), "-o", str(target), "--json", *where)
        assert missing.returncode == 2
        assert json.loads(missing.stdout)["error"]["code"]
