"""A batch from file to file while a worker, then the scheduler, is killed with -9: no row may be lost or doubled."""

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from bench.cases import mt_bench
from bench.report import Target, show
from producer.batch import Progress, run_batch
from producer.fleet import Fleet
from tokenfleet.up.commands import SMALL_MODEL, FleetOptions
from tokenfleet.up.fleet import EmbeddedFleet

KILLS = (("worker-1", 0.15), ("scheduler", 0.45))
"""Who is killed once which share of the rows is written."""


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make kill-batch", description=__doc__)
    parser.add_argument("--input", type=Path, help="batch file; by default MT-bench from the folder that CASES names")
    parser.add_argument("--engine", choices=("llama", "sim"), default="llama")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        source = options.input or mt_bench(SMALL_MODEL, Path(scratch))
        target = Path(scratch) / "out.jsonl"
        kills = asyncio.run(_run(source, target, options.engine))
        asked, answered = Counter(_ids(source)), Counter(_ids(target))
    missing = sum((asked - answered).values())
    doubled = sum((answered - asked).values())
    targets = [Target("rows missing", missing, 0, "lower"), Target("rows doubled", doubled, 0, "lower")]
    figures = {"rows in": asked.total(), "rows out": answered.total(), "processes killed": kills}
    show("kill-batch", targets, figures, as_json=options.json)


async def _run(source: Path, target: Path, engine: str) -> int:
    """Run the batch and the kills; yields how many processes were killed."""
    total = sum(1 for _ in _ids(source))
    due = list(KILLS)
    async with EmbeddedFleet(FleetOptions(engine="sim" if engine == "sim" else "llama")) as embedded:
        await embedded.ready(120)

        def on_progress(progress: Progress) -> None:
            while due and progress.rows_out >= due[0][1] * total:
                name, _ = due.pop(0)
                print(f"{progress.rows_out}/{total} rows: kill -9 {name}", file=sys.stderr)
                embedded.process(name).kill(signal.SIGKILL)

        async with Fleet(embedded.redis_url) as fleet:
            await run_batch(fleet, source, target, on_progress=on_progress)
    return len(KILLS) - len(due)


def _ids(path: Path) -> Iterable[str]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)["custom_id"]


if __name__ == "__main__":
    main()
