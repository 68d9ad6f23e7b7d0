"""`make chaos-batch`: GSM8K through the simulated engine while the runner, a worker or the scheduler is killed with -9.

The runner is `tokenfleet batch run --resume`, started again after each kill. Engines note each row that they start on,
and each that they are done with, and only a kill keeps them from the second. So the rows in flight at the kills are
exact, whenever they are counted: those that a killed worker's engine had started and not ended, or ended so late that
Redis had not recorded it. Each of them may be started once more. What was only assigned to that worker was not started,
and a runner or a scheduler that is killed is no reason to start any row again. This holds for all rows together, which
is the target, and for each row, or one that is redone would be paid for by another one that was set aside.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench.batches import chaos_roles
from bench.batches.cuts import START, Cuts
from bench.batches.files import LineCount
from bench.cases import gsm8k
from bench.chaos import nursery
from bench.chaos.journal import read
from bench.chaos.nursery import Cub
from bench.report import Target, show
from producer.batch.reconcile import Reconciler
from protocol.handle import Shard
from protocol.settings import Settings
from tests.support.servers import Server, valkey_binary

MODEL = "chaos"
ROWS = 1_319
EACH_S = 2.0
WATCH_S = 0.02
LONGEST_S = 600.0
WORKERS, SLOTS, SPEED, WINDOW = 2, 8, 0.6, 64
"""Slow enough that there are some dozens of kills; a window that the runner has to fill again and again."""
RUNNER = "runner"
ENDED = (0, 3)
"""Exit codes of a batch that has run to its end."""


class Play:
    """One run: the roles, and what was done to them."""

    def __init__(self, folder: Path, source: Path, seed: int) -> None:
        """Cast everyone; nobody has started."""
        self.folder, self.source, self.target = folder, source, folder / "out.jsonl"
        self._chance = random.Random(seed)
        data = folder / "valkey"
        data.mkdir()
        self._server = Server(valkey_binary(), data, append_only=True)
        self.kills: Counter[str] = Counter()
        self.cuts = Cuts(self._server, Shard(MODEL))
        self._cubs: list[Cub] = []

    def run(self) -> float:
        """Until the batch has ended; the seconds that it took."""
        self._server.start()
        try:
            self._cast()
            for cub in self._cubs:
                cub.start()
            begin = time.monotonic()
            self._harm(begin)
            return time.monotonic() - begin
        finally:
            for cub in self._cubs:
                cub.kill()
            self._server.kill()

    @property
    def starts(self) -> Counter[int]:
        """Line of the input → how often an engine has started on it."""
        facts = (fact for label in self._labels() for fact, _ in read(self._journal(label)))
        return Counter(fact.number for fact in facts if fact.kind == START)

    @property
    def unexplained(self) -> Counter[int]:
        """Line of the input → how often it was started again though no kill had cut it off."""
        again = Counter({number: count - 1 for number, count in self.starts.items()})
        return again - self.cuts.rows

    @property
    def lives(self) -> int:
        """Of all processes."""
        return sum(cub.starts for cub in self._cubs)

    def _cast(self) -> None:
        nursery.warm(chaos_roles.__name__)
        settings = Settings(redis_url=self._server.url, lease_s=3.0, lead_s=1.0, log_level="warning")
        files = ("-i", str(self.source), "-o", str(self.target))
        words = ("batch", "run", *files, "--resume", "--window", str(WINDOW), "--redis-url", self._server.url)
        self._add("scheduler", chaos_roles.schedule, settings)
        for label in self._labels():
            self._add(label, chaos_roles.work, settings, MODEL, label, self._journal(label), SPEED, SLOTS)
        self._add(RUNNER, chaos_roles.command, words)

    def _add(self, name: str, run: Callable[..., None], *arguments: object) -> None:
        self._cubs.append(Cub(name, self.folder / f"{name}.log", run, *arguments))

    def _labels(self) -> list[str]:
        return [f"worker-{number}" for number in range(WORKERS)]

    def _journal(self, label: str) -> Path:
        return self.folder / f"{label}.journal"

    def _harm(self, begin: float) -> None:
        """A kill every few seconds, once the first row is written."""
        lines, runner, next_s = LineCount(self.target), self._cubs[-1], 0.0
        while runner.exit_code not in ENDED:
            now = time.monotonic()
            if now > begin + LONGEST_S:
                raise SystemExit("the batch does not end")
            self._start_again(lines.now())
            if next_s and now >= next_s:
                self._kill_one(lines.now())
            if (lines.now() or next_s) and now >= next_s:
                next_s = now + EACH_S
            time.sleep(WATCH_S)

    def _start_again(self, lines: int) -> None:
        """Whoever has died. Before a worker has registered, the model is unknown and the runner refuses to begin."""
        for cub in self._cubs:
            if cub.exit_code is not None and cub.exit_code not in ENDED:
                if cub.exit_code != -signal.SIGKILL and lines:
                    said = (self.folder / f"{cub.name}.log").read_text(encoding="utf-8")[-2000:]
                    raise SystemExit(f"{cub.name} ended by itself with code {cub.exit_code}:\n{said}")
                cub.start()

    def _kill_one(self, lines: int) -> None:
        kind = self._chance.choice((RUNNER, "worker", "scheduler"))
        cub = self._chance.choice([cub for cub in self._cubs if cub.name.startswith(kind)])
        if cub.exit_code is not None:
            return
        cub.kill()
        cut = self.cuts.note(cub.name, self._journal(cub.name)) if kind == "worker" else 0
        self.kills[kind] += 1
        print(f"{lines} rows: kill -9 {cub.name}, {cut} in flight", file=sys.stderr)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make chaos-batch", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"how many [default: {ROWS}]")
    parser.add_argument("--seed", type=int, default=1, help="of the kills")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    options = parser.parse_args()
    # Told to end, it ends what it started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        play = Play(folder, gsm8k(MODEL, options.rows, folder), options.seed)
        seconds = play.run()
        reconciler = Reconciler(play.source, [play.target])
        for finding in reconciler.findings():
            print(finding, file=sys.stderr)
        starts, unexplained = play.starts, play.unexplained
        for number, count in sorted(unexplained.items()):
            print(f"line {number}: started {count} times more than kills explain", file=sys.stderr)
        failed = play.target.read_bytes().count(b'"response":null')
    report = reconciler.report
    targets = [
        Target("rows missing", report.missing, 0, "lower"),
        Target("rows doubled", report.doubled, 0, "lower"),
        Target("lines of no row, or unreadable", report.foreign + report.unreadable, 0, "lower"),
        Target("engine starts beyond one a row", starts.total() - report.rows, len(play.cuts), "lower"),
        Target("engine starts that no kill explains", unexplained.total(), 0, "lower"),
    ]
    figures = {
        "rows": float(report.rows),
        "rows that no engine has started": float(report.rows - len(starts)),
        "rows set aside after several kills": float(failed),
        "seconds": seconds,
        **{f"kills: {kind}": float(count) for kind, count in play.kills.items()},
        "rows in flight at the kills": float(len(play.cuts)),
        "engine starts": float(starts.total()),
        "lives of all processes": float(play.lives),
    }
    show("chaos-batch", targets, figures, as_json=options.json)


if __name__ == "__main__":
    main()
