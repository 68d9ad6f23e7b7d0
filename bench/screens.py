"""Write the screens of `top` and `doctor` into docs/observe.md: drawn by their own code, of a fleet at rest."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console, RenderableType

from producer.overview import BatchView, FirstTokens, LaneView, Overview, ShardView, WorkerView
from protocol.batches import BatchStatus
from protocol.handle import Handle, Shard
from protocol.server_facts import BufferLimit, ServerConfig, ServerFacts
from protocol.states import Priority, WorkerState
from tokenfleet.doctor import fleet, here, rights, server
from tokenfleet.doctor.finding import Finding
from tokenfleet.doctor.view import as_text
from tokenfleet.top.view import Moment, screen

PAGE = Path(__file__).parents[1] / "docs" / "observe.md"
WIDTH, HEIGHT = 80, 24
WHERE = "rediss://redis.internal:6380/0"
NOW_MS = 1_800_000_000_000
_SHARD = Shard("qwen3-8b")
_BLOCK = re.compile(r"(<!-- screen: (\w+) -->\n```text\n).*?(```\n)", re.DOTALL)


def page(text: str) -> str:
    """The page with its screens drawn anew."""
    screens = {"top": top, "unled": unled, "away": away, "doctor": doctor}
    return _BLOCK.sub(lambda found: f"{found[1]}{_drawn(screens[found[2]]())}{found[3]}", text)


def _drawn(what: RenderableType) -> str:
    console = Console(width=WIDTH, color_system=None, legacy_windows=False, force_terminal=False, _environ={})
    with console.capture() as captured:
        console.print(what)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def top() -> RenderableType:
    """A fleet at work."""
    return screen(_moment(), WIDTH, HEIGHT)


def unled() -> RenderableType:
    """The same without a scheduler, in a low terminal."""
    return screen(_moment(led=False), WIDTH, 10)


def away() -> RenderableType:
    """Redis does not answer any more."""
    return screen(_moment(trouble="Redis is away: Redis does not answer (ConnectionError)"), WIDTH, 10)


def _moment(*, led: bool = True, trouble: str = "") -> Moment:
    clock = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    return Moment(WHERE, clock, overview(led=led), trouble, 4.0 if trouble else 0.0)


def overview(*, led: bool = True) -> Overview:
    """Three workers, of which one loads, and a batch behind a dialogue."""
    workers = (
        _worker("gpu-0", "active", score=0.71, running=31, kv=0.62, speed=2_210.4, held=32),
        _worker("gpu-1", "active", score=0.93, running=48, kv=0.97, speed=2_874.0, held=60),
        _worker("gpu-2", "loading", score=0.11, running=0, kv=0.0, speed=0.0, held=0),
    )
    lanes = (
        LaneView(Priority.HIGH, 2, 140),
        LaneView(Priority.MEDIUM, 1_204, 96_000),
        LaneView(Priority.LOW, 0, 0),
    )
    shard = ShardView(_SHARD, ("qwen3-8b",), led, "predictive" if led else "", 3, lanes, 4, 1, workers)
    progress = BatchView(
        "acme", "batch_5a1e3017c0f11a49", BatchStatus.IN_PROGRESS, "qwen3-8b", 10_000, 6_120, 3, 312.0, 0
    )
    return Overview(NOW_MS, (shard,), FirstTokens(220, 48, 131), (progress,))


def _worker(
    label: str, state: WorkerState, *, score: float, running: int, kv: float, speed: float, held: int
) -> WorkerView:
    return WorkerView(
        id=f"{label}-id",
        label=label,
        state=state,
        models=("qwen3-8b",),
        slots=64,
        held=held,
        load_score=score,
        memory=0.9,
        running=running,
        waiting=held - running,
        capacity=48,
        kv=kv,
        device_utilisation=0.97 if running else 0.02,
        device_temperature_c=71.0 if running else 38.0,
        report_age_ms=90,
        tokens_per_s=speed,
        jobs=(Handle(_SHARD, "acme", "3f2a"),) if running else (),
    )


def doctor() -> RenderableType:
    """A set-up with three faults."""
    return as_text(list(_findings()), WHERE)


def _findings() -> Iterator[Finding]:
    facts = ServerFacts(
        product="Valkey",
        version=(9, 1, 0),
        speaks=(7, 2, 4),
        replica=False,
        replicas=1,
        used=310 * 2**20,
        limit=0,
        policy="allkeys-lru",
        appends=True,
        writes_fail=False,
    )
    limit = BufferLimit(64 * 2**20, 16 * 2**20, 60)
    config = ServerConfig("everysec", limit, addresses=("10.0.0.5",), protected=True)
    yield here.of_round_trip(0.0004)
    yield here.of_skew(0.002, 0.0002)
    yield here.of_way(WHERE.replace("//", "//operator:a-password@"))
    yield from server.of_facts(facts)
    yield from server.of_config(config, appends=True)
    yield here.of_door(config, anyone=False)
    yield rights.of_refused("operator", "scheduler", ())
    yield server.of_library("missing")
    yield from fleet.of_fleet(overview(led=False), {_SHARD: NOW_MS})
    yield here.of_store(None)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
