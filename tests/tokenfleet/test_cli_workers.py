"""`tokenfleet workers`: the tables, and commands to a worker that answers by hand."""

import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from click.testing import Result as Ran
from redis import Redis
from rich.console import Console

from producer.workers import PlacedWorker, Roster
from protocol import functions, reads
from protocol.call import run_sync
from protocol.functions import register
from protocol.handle import Shard
from protocol.messages import LoadReport, ModelRecord, WorkerRecord
from tests.support.builders import SHARD, join_worker
from tokenfleet.cli import main as cli
from tokenfleet.cli.exits import Exit
from tokenfleet.cli.workers_view import as_json, as_tables

NOW_MS = 1_000_000
REPORT = LoadReport(
    running=3,
    waiting=1,
    capacity=16,
    kv_used_tokens=12_800,
    kv_total_tokens=46_592,
    prefix_query_tokens=400,
    prefix_hit_tokens=252,
    device_temperature_c=64.4,
    device_utilisation=0.93,
    state_s={"starting": 0.2, "loading": 21.4, "active": 7_560.0},
)


def a_worker(label: str = "gpu-1", **changes: Any) -> WorkerRecord:
    plain = WorkerRecord(
        id="5f2a91c04be17d3a",
        label=label,
        state="active",
        models=("m", "m-lora"),
        slots=16,
        held=3,
        lease_ms=NOW_MS + 1,
        report=REPORT,
    )
    return plain.model_copy(update=changes)


def a_roster(*workers: WorkerRecord) -> Roster:
    return Roster(NOW_MS, tuple(PlacedWorker(Shard("p"), worker) for worker in workers))


def shown(roster: Roster, width: int = 80) -> list[str]:
    """Lines without their layout."""
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(as_tables(roster))
    return [" ".join(line.split()) for line in console.export_text().splitlines()]


@pytest.mark.parametrize("width", [80, 120])
def test_a_worker_stands_in_two_tables(width: int) -> None:
    lines = shown(a_roster(a_worker()), width)
    assert lines[0] == "p.0"
    assert "gpu-1 5f2a91c0 active 3/16 3 1 12.8k/46.6k 63% 64 °C 93%" in lines
    assert "gpu-1 starting 200 ms, loading 21 s, active 2.1 h m, m-lora" in lines


def test_what_is_not_told_is_a_dash_and_a_label_can_not_act_on_the_terminal() -> None:
    lines = shown(a_roster(a_worker("\x1b[2J", report=LoadReport(), models=(), lease_ms=NOW_MS)))
    assert "\\x1b[2J 5f2a91c0 lost 3/16 0 0 - - -" in lines
    assert "\\x1b[2J - -" in lines


def test_an_empty_fleet_says_what_to_do() -> None:
    assert "tokenfleet worker --model NAME --engine …" in shown(a_roster())


def test_json_has_everything() -> None:
    (worker,) = as_json(a_roster(a_worker(lease_ms=0)))["workers"]
    assert (worker["shard"], worker["id"], worker["state"], worker["models"]) == (
        "p.0",
        "5f2a91c04be17d3a",
        "lost",
        ["m", "m-lora"],
    )
    assert worker["prefix_hits"] == 0.63
    assert worker["report"]["state_s"]["loading"] == 21.4


def ran(*arguments: str) -> Ran:
    return CliRunner().invoke(cli, ["workers", *arguments])


@pytest.fixture
def fleet(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Redis]:
    """A server with a standby worker `w1`, whose label is `label-w1`."""
    monkeypatch.setenv("TOKENFLEET_REDIS_URL", valkey_url)
    with Redis.from_url(valkey_url) as client:
        run_sync(client, register("m", ModelRecord(pool=SHARD.pool)))
        run_sync(client, join_worker(state="warm"))
        yield client


def answering(client: Redis, **answer: Any) -> threading.Thread:
    """A worker that answers the next command so."""

    def work() -> None:
        entries = run_sync(client, reads.inbox_after(SHARD, "w1", "0", 5_000))
        run_sync(client, join_worker(join=False, answered=entries[-1].entry_id, **answer))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_command_says_what_came_of_it(fleet: Redis) -> None:
    thread = answering(fleet, state="active")
    result = ran("promote", "label-w1")
    thread.join()
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("label-w1 is active, was warm; answered after ")


def test_a_command_in_json(fleet: Redis) -> None:
    thread = answering(fleet, state="asleep")
    said = json.loads(ran("sleep", "w1", "--json").stdout)
    thread.join()
    assert 0 <= said.pop("seconds") < 5
    assert said == {
        "worker": "w1",
        "label": "label-w1",
        "shard": "pool.0",
        "command": "sleep",
        "before": "warm",
        "state": "asleep",
    }


def test_refusals_and_silence_have_exit_codes(fleet: Redis) -> None:
    thread = answering(fleet, state="warm", refusal="it is not asleep")
    refused = ran("wake", "w")
    thread.join()
    assert (refused.exit_code, "the worker refuses: it is not asleep" in refused.stderr) == (Exit.INVALID, True)
    unknown = ran("wake", "nobody", "--json")
    assert (unknown.exit_code, json.loads(unknown.stdout)["error"]["code"]) == (Exit.INVALID, "unknown_worker")
    silent = ran("drain", "w1", "--timeout", "100ms")
    assert (silent.exit_code, "did not answer within 0.1 s" in silent.stderr) == (Exit.UNAVAILABLE, True)


def test_the_list_is_of_all_workers(fleet: Redis) -> None:
    run_sync(fleet, join_worker("w2", state="loading"))
    said = json.loads(ran("list", "--json").stdout)
    assert {worker["id"]: worker["state"] for worker in said["workers"]} == {"w1": "warm", "w2": "loading"}
    text = ran("list").stdout
    assert "label-w1" in text
    assert "label-w2" in text
    for worker in ("w1", "w2"):
        assert run_sync(fleet, functions.leave(SHARD, worker))
