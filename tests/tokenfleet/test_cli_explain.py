"""`tokenfleet explain` on a real server: a job that waits, one that runs, one that ended."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis

from protocol import keys
from protocol.call import run_sync
from protocol.functions import Move, assign, leave, register
from protocol.handle import Handle
from protocol.messages import ModelRecord, Why
from protocol.outlook import Outlook, publish
from tests.support.builders import BOSS, SHARD
from tests.support.driver import Driver
from tokenfleet.cli import main as cli
from tokenfleet.cli.exits import Exit


@pytest.fixture
def driver(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    monkeypatch.setenv("TOKENFLEET_REDIS_URL", valkey_url)
    with Redis.from_url(valkey_url) as client:
        fleet = Driver(client)
        fleet.run(register("m", ModelRecord(pool=SHARD.pool)))
        yield fleet
        for worker in ("w1", "w2"):
            while not run_sync(client, leave(SHARD, worker)):
                continue


def said(handle: Handle) -> str:
    result = CliRunner().invoke(cli, ["explain", str(handle)])
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def asked(handle: Handle) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["explain", str(handle), "--json"])
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_a_job_that_waits_for_room(driver: Driver) -> None:
    driver.lead()
    driver.running("first")
    driver.join("w1", slots=1, join=False)
    driver.join("w2", state="draining")
    driver.submit("second")
    handle = driver.submit("third").handle
    hints = driver.redis.xlen(keys.events(SHARD))
    driver.run(publish(SHARD, Outlook(at_ms=0, policy="least-work", workers_wanted=2, observed=(0.9, 1.1, 1.6))))
    answer = asked(handle)
    assert (answer["state"], answer["ran"]) == ("queued", None)
    found = answer["queued"]
    assert (found["place"], found["ahead_jobs"], found["ahead_tokens"]) == (1, 1, 100)
    assert found["start_in_ms"] > 0
    assert found["observed"] == [0.9, 1.1, 1.6]
    assert {one["id"]: one["ruled_out"] for one in found["workers"]}["w2"] == "not_active"
    text = said(handle)
    assert "1 job, 100 tokens" in text
    assert "label-w2" in text
    assert "so far first tokens took 0.9 to 1.6 times what was predicted" in text
    assert driver.redis.xlen(keys.events(SHARD)) == hints


def test_a_job_that_nobody_could_run(driver: Driver) -> None:
    handle = driver.submit().handle
    assert asked(handle)["queued"]["verdict"] == "no_worker"
    text = said(handle)
    assert "none that is active could run it" in text
    assert "no worker is there" in text


def test_a_job_that_runs_and_then_has_ended(driver: Driver) -> None:
    driver.lead()
    driver.join("w1")
    handle = driver.submit().handle
    why = Why(policy="predictive", predicted_ms=40, scores={"label-w1": 40, "other": 55})
    moved = driver.run(assign(SHARD, BOSS, [Move(driver.job(handle).member, "w1", why=why)]))
    attempt = moved[0] if moved else None
    assert isinstance(attempt, int)
    assert "label-w1, attempt" in said(handle)
    driver.start(handle, attempt)
    driver.emit(handle, attempt, 1)
    driver.finish(handle, attempt, frames=1)
    ran = asked(handle)["ran"]
    assert (ran["policy"], ran["predicted_ms"], ran["scores"]) == ("predictive", 40, {"label-w1": 40, "other": 55})
    assert ran["observed_ms"] >= 0
    assert ran["total_ms"] >= ran["first_token_ms"] >= ran["queue_ms"] >= ran["inbox_ms"] >= 0
    text = said(handle)
    assert "predictive: a first token after 40 ms was predicted" in text
    assert "label-w1 40 ms, other 55 ms" in text
    assert "times what was predicted" in text


def test_a_job_that_was_cancelled_before_it_ran(driver: Driver) -> None:
    handle = driver.submit().handle
    driver.cancel()
    ran = asked(handle)["ran"]
    assert (ran["worker"], ran["observed_ms"], ran["policy"]) == (None, None, None)
    assert "no worker ever took it" in said(handle)


def test_an_unknown_job_is_code_2() -> None:
    result = CliRunner().invoke(cli, ["explain", "nonsense", "--json"])
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (Exit.INVALID, "invalid_id")
