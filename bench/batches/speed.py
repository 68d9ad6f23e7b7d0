"""`make bench-batch`: generated rows through the simulated engine, which answers at once: what all the rest costs.

Each size is one `tokenfleet batch run`, from the start of its process to its end, validation and all. The largest is
killed with -9 once 99 % of its rows are written; it is resumed, and counts with both of its runs.

Memory of Redis is what it has allocated, less the buffers of its clients and of its append-only file, looked at all the
time. It holds most once a whole window of rows is answered and none is fetched. In the middle of each size that is
brought about: the worker is stopped until the window is full, then the runner until all of it is answered. Otherwise
the peak is that of the longest stall by chance, and a longer run has a longer one.

The resident peak stands beside it: 5 MiB of it are the program, and it grows with the time that a run takes although
Redis holds no more. While the disk keeps an fsync waiting, what is to be written piles up in the buffer of the file, at
some moment more than ever before, and the C library keeps the pages and the holes that this leaves.
"""

import argparse
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import parts
from bench.batches.files import LineCount, generate
from bench.report import Target, show
from bench.vllm_env.pinning import cpu_seconds
from producer.batch.reconcile import Reconciler
from producer.sync import SyncFleet
from protocol.call import Call, run_sync
from tests.support.servers import Server, valkey_binary

SIZES = (10_000, 100_000, 1_000_000)
QUICK = (10_000, 30_000)
SHARE = 0.99
SLOTS, WINDOW = 512, 2_048
"""Rows that the engine takes at once, and rows in Redis at once. So fast an engine waits for rows otherwise: in one
round of feeding, dispatching and collecting no more are done than are in Redis."""
LOOK_S = 0.05
STOPPED_S = 2.0
"""By then the runner has filled the window, and the engine has answered all of it."""
READY_S = 60.0
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """One size; peaks of memory in bytes, those of the runner and `resident_bytes` of Redis resident.

    `cpu_s` are seconds of each process.
    """

    rows: int
    seconds: float
    runner_bytes: int
    redis_bytes: int
    resident_bytes: int
    cpu_s: dict[str, float]
    resumed_s: float = 0.0
    """From the start of the second run's process to its first new line; 0 where there was no second run."""
    second_s: float = 0.0
    """From there to its end."""
    proven: bool = False


def main() -> None:
    """Run the measurement."""
    parser = argparse.ArgumentParser(prog="make bench-batch", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"only {' and '.join(map(str, QUICK))} rows")
    parser.add_argument("--rows", type=int, nargs="+", help="other sizes, smallest first")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    options = parser.parse_args()
    # Told to end, it ends what it started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sizes = options.rows or (QUICK if options.quick else SIZES)
    samples = []
    for rows in sizes:
        with tempfile.TemporaryDirectory() as folder:
            samples.append(_measure(Path(folder), rows, kill=rows == sizes[-1]))
            print(f"{rows:,} rows: {rows / samples[-1].seconds:,.0f} rows/s", file=sys.stderr)
    show("bench-batch", _targets(samples), _figures(samples), as_json=options.json)


def _measure(folder: Path, rows: int, *, kill: bool) -> Sample:
    """One size on a fleet of its own."""
    source, target = generate(folder / "in.jsonl", parts.MODEL, rows), folder / "out.jsonl"
    with _fleet(folder) as (server, processes):
        before, held = cpu_seconds_of(processes), _Held(server)
        kill_at = int(rows * SHARE) if kill else None
        child = _Run(server.url, source, target, kill_at=kill_at)
        child.fill(rows // 2, processes["worker"])
        seconds, peak, runner_s = child.watch(held), child.peak_bytes, child.cpu_s
        resumed_s = second_s = 0.0
        if kill:
            child = _Run(server.url, source, target)
            second_s = child.watch(held)
            resumed_s, seconds = child.first_line_s, seconds + second_s
            peak, runner_s = max(peak, child.peak_bytes), runner_s + child.cpu_s
        cpu_s = {name: now - before[name] for name, now in cpu_seconds_of(processes).items()}
        resident_bytes = peak_bytes(server.pid)
    reconciler = Reconciler(source, [target])
    for finding in reconciler.findings():
        print(finding, file=sys.stderr)
    cpu_s |= {"runner": runner_s}
    memory = peak, held.peak_bytes, resident_bytes
    return Sample(rows, seconds, *memory, cpu_s, resumed_s, second_s, reconciler.report.proven)


@contextmanager
def _fleet(folder: Path) -> Iterator[tuple[Server, dict[str, int]]]:
    """A server with an append-only file, a scheduler and a worker that serves; and their process ids."""
    data = folder / "valkey"
    data.mkdir()
    server = Server(valkey_binary(), data, append_only=True)
    server.start()
    try:
        engine = ("--engine", "sim", "--sim-profile", "instant", "--slots", str(SLOTS))
        command = parts.tokenfleet(server.url, "worker", "--model", parts.MODEL, *engine)
        with parts.scheduler(server.url) as scheduler, parts.process(command) as worker:
            with SyncFleet(server.url) as fleet:
                fleet.ready(parts.MODEL, timeout=READY_S)
            yield server, {"redis": server.pid, "scheduler": scheduler.pid, "worker": worker.pid}
    finally:
        server.kill()


class _Held:
    """The most that Redis has held whenever it was looked at."""

    def __init__(self, server: Server) -> None:
        self._client = server.client()
        self.peak_bytes = 0

    def look(self) -> None:
        """Now."""
        self.peak_bytes = max(self.peak_bytes, run_sync(self._client, Call(("INFO", "memory"), parts.own_memory)))


class _Run:
    """One `tokenfleet batch run`; with `kill_at` it is killed once so many lines are written."""

    def __init__(self, url: str, source: Path, target: Path, kill_at: int | None = None) -> None:
        files = ("-i", str(source), "-o", str(target))
        words = ("batch", "run", *files, "--resume", "--window", str(WINDOW), "--json")
        self._lines, self._kill_at = LineCount(target), kill_at
        self._fill_at, self._worker = math.inf, 0
        self._first = self._lines.now()
        self._begin = time.monotonic()
        self._spent_s = _children_s()
        self._log = target.with_suffix(".log")
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(parts.tokenfleet(url, *words), stdout=subprocess.DEVNULL, stderr=log)
        self.peak_bytes = 0
        self.first_line_s = 0.0
        self.cpu_s = 0.0

    def watch(self, held: _Held) -> float:
        """Until it has ended; the seconds that it took."""
        while self._child.poll() is None:
            held.look()
            self.peak_bytes = max(self.peak_bytes, peak_bytes(self._child.pid))
            lines = self._lines.now()
            if not self.first_line_s and lines > self._first:
                self.first_line_s = time.monotonic() - self._begin
            if lines >= self._fill_at:
                self._fill_at = math.inf
                for stopped in (self._worker, self._child.pid):
                    self._stop(stopped, held)
            if self._kill_at is not None and lines >= self._kill_at:
                self._child.send_signal(signal.SIGKILL)
            time.sleep(LOOK_S)
        seconds = time.monotonic() - self._begin
        self.cpu_s = _children_s() - self._spent_s
        if self._child.returncode != (0 if self._kill_at is None else -signal.SIGKILL):
            said = self._log.read_text(errors="replace")[-2000:]
            raise SystemExit(f"the batch ended with code {self._child.returncode}:\n{said}")
        return seconds

    def fill(self, at: int, worker: int) -> None:
        """Once so many lines are written, stop the worker until the window is full, then the runner; see above."""
        self._fill_at, self._worker = at, worker

    @staticmethod
    def _stop(pid: int, held: _Held) -> None:
        os.kill(pid, signal.SIGSTOP)
        until = time.monotonic() + STOPPED_S
        while time.monotonic() < until:
            held.look()
            time.sleep(LOOK_S)
        os.kill(pid, signal.SIGCONT)


def peak_bytes(pid: int) -> int:
    """The most that a process had resident; 0 of one that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    peaks = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(peaks[0]) * 1024 if peaks else 0


def cpu_seconds_of(processes: dict[str, int]) -> dict[str, float]:
    """CPU time of each."""
    return {name: cpu_seconds([pid]) for name, pid in processes.items()}


def _children_s() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _targets(samples: list[Sample]) -> list[Target]:
    before, last = samples[-2:]
    over = f"at {last.rows:,} over {before.rows:,} rows"
    return [
        Target(f"rows/s at {last.rows:,} rows", last.rows / last.seconds, 1_500, "higher"),
        Target(f"peak memory of the runner, {over}", last.runner_bytes / before.runner_bytes, 1.1, "lower"),
        Target(f"peak memory of Redis, {over}", last.redis_bytes / before.redis_bytes, 1.1, "lower"),
        Target("seconds to resume at 99 %", last.resumed_s, 10, "lower"),
        Target("files that are not proven complete", sum(not sample.proven for sample in samples), 0, "lower"),
    ]


def _figures(samples: list[Sample]) -> dict[str, float]:
    figures = {"seconds of the resumed run": samples[-1].second_s}
    for sample in samples:
        size = f"{sample.rows:,} rows: "
        figures[f"{size}rows/s"] = sample.rows / sample.seconds
        figures[f"{size}peak of the runner, MiB"] = sample.runner_bytes / MIB
        figures[f"{size}peak of Redis, MiB"] = sample.redis_bytes / MIB
        figures[f"{size}peak of Redis, resident, MiB"] = sample.resident_bytes / MIB
        for name, seconds in sample.cpu_s.items():
            figures[f"{size}CPU ms a row, {name}"] = seconds * 1000 / sample.rows
    return figures


if __name__ == "__main__":
    main()
