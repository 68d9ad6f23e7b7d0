"""`make chaos`: jobs, followers and kills all at once, on real processes; counts what went wrong."""

import argparse
import asyncio
import signal
import sys
import tempfile
from pathlib import Path

from bench.chaos import verdict
from bench.chaos.plan import Plan
from bench.chaos.stage import Stage
from bench.report import show

QUICK = {"jobs": 3_000, "poison": 3, "rate": 75.0}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute's version with fewer jobs")
    parser.add_argument("--jobs", type=int, help="how many")
    parser.add_argument("--rate", type=float, help="jobs submitted a second")
    parser.add_argument("--seed", type=int, default=1, help="of the kills")
    parser.add_argument("--keep", type=Path, help="an empty folder for journals and logs; a temporary one by default")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    options = parser.parse_args()
    # Told to end, it ends what it started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    given = {name: getattr(options, name) for name in ("jobs", "rate") if getattr(options, name)}
    sizes = (QUICK if options.quick else {}) | given | {"seed": options.seed}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        stage = Stage(folder, lambda url: Plan(folder, url, **sizes))
        left = asyncio.run(stage.play())
    plan, harm = stage.plan, stage.harm
    recovered = verdict.recoveries(harm.cuts, stage.seen, plan.poisonous())
    figures = {
        "seconds": stage.seconds,
        "jobs": float(plan.jobs),
        **{f"kills: {kind}": float(count) for kind, count in harm.kills.items()},
        "longest absence of Redis, s": max(harm.away_s, default=0.0),
        "attempts cut off and seen to recover": float(len(recovered)),
        "lives of all processes": float(stage.lives),
        "ended by themselves, not by us or poison": float(stage.surprises),
    }
    # None of them where nothing was seen to recover, which the targets tell.
    for name, share in (("recovery p50, s", 0.5), ("recovery max, s", 1.0)):
        if (taken_s := verdict.percentile(recovered, share)) is not None:
            figures[name] = taken_s
    show("chaos", verdict.targets(plan, stage.seen, left, recovered), figures, as_json=options.json)
    for line in (*left.keys[:10], *stage.oddities()[:10]):
        print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
