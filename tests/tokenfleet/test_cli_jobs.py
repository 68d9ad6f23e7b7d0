"""The commands around a job, on a real server: no worker is needed to submit, look and cancel."""

import json

import pytest
from click.testing import CliRunner
from click.testing import Result as Ran
from redis import Redis

from protocol import reads
from protocol.call import run_sync
from protocol.functions import register
from protocol.handle import Shard
from protocol.messages import ModelRecord
from tokenfleet.cli import main as cli
from tokenfleet.cli.exits import Exit


@pytest.fixture
def fleet_url(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A server that knows the model `m` of the pool `m`, which all commands use."""
    with Redis.from_url(valkey_url) as client:
        run_sync(client, register("m", ModelRecord(pool="m")))
    monkeypatch.setenv("TOKENFLEET_REDIS_URL", valkey_url)
    return valkey_url


def ran(*arguments: str, stdin: str = "") -> Ran:
    return CliRunner().invoke(cli, list(arguments), input=stdin)


def said(*arguments: str, stdin: str = "") -> str:
    """The stripped stdout of a command that ends well."""
    result = ran(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_a_job_that_never_is_to_be_refused(fleet_url: str) -> None:
    said("submit", "Hello", "--best-effort", "--id", "patient")
    said("submit", "Hello", "--id", "plain")
    with Redis.from_url(fleet_url) as client:
        jobs = [run_sync(client, reads.waiting_job(Shard("m"), f"default:{name}")) for name in ("patient", "plain")]
    assert [job.spec.best_effort for job in jobs if job] == [True, False]


def test_a_job_from_submit_to_cancel(fleet_url: str) -> None:
    handle = said("submit", "Hello", "--priority", "low", "--deadline", "6h", "--id", "mine")
    assert handle == "m.0.default.mine"
    job = json.loads(said("job", handle, "--json"))
    assert {name: job[name] for name in ("handle", "state", "priority", "model", "place", "attempt", "queue_ms")} == {
        "handle": handle,
        "state": "queued",
        "priority": "low",
        "model": "m",
        "place": 0,
        "attempt": 0,
        "queue_ms": None,
    }
    assert job["deadline_ms"] - job["submitted_ms"] == 6 * 3_600_000
    assert "0 jobs before it in the lane" in said("job", handle)
    assert said("cancel", handle) == "cancelled; the job was queued"
    assert json.loads(said("cancel", handle, "--json")) == {
        "handle": handle,
        "before": "cancelled",
        "cancelled": False,
    }
    followed = ran("follow", handle)
    assert (followed.exit_code, "job cancelled" in followed.stderr) == (Exit.FAILED, True)


def test_submitting_again_finds_the_same_job(fleet_url: str) -> None:
    first, again = (json.loads(said("submit", "Hello", "--id", "one", "--json")) for _ in range(2))
    assert first == {"handle": "m.0.default.one", "created": True}
    assert again == {"handle": "m.0.default.one", "created": False}
    other = ran("submit", "Something else", "--id", "one", "--json")
    assert (other.exit_code, json.loads(other.stdout)["error"]["code"]) == (Exit.INVALID, "conflicting_id")
    said("cancel", "m.0.default.one")


def test_prompts_and_bodies_come_from_stdin(fleet_url: str) -> None:
    body = json.dumps({"model": "m", "prompt": "Once", "max_tokens": 3})
    handle = said("submit", "--body", "-", "--id", "two", stdin=body)
    assert json.loads(said("job", handle, "--json"))["endpoint"] == "/v1/completions"
    chat = said("submit", "-", "--system", "Be brief.", "--model", "m", stdin="Hello\n")
    assert json.loads(said("job", chat, "--json"))["endpoint"] == "/v1/chat/completions"
    for job in (handle, chat):
        said("cancel", job)


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["submit", "x", "--model", "other"], "unknown_model", Exit.INVALID),
        (["submit", "x", "--id", "a:b"], "invalid_id", Exit.INVALID),
        (["submit", "--body", "-"], "invalid_json", Exit.INVALID),
        (["job", "m.0.default.none"], "unknown_job", Exit.INVALID),
        (["follow", "m.0.default.none"], "unknown_job", Exit.INVALID),
        (["cancel", "m.0.default.none"], "unknown_job", Exit.INVALID),
    ],
)
def test_refusals_are_typed(fleet_url: str, arguments: list[str], code: str, exit_code: Exit) -> None:
    result = ran(*arguments, "--json", stdin="[1]")
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (exit_code, code)


def test_without_the_library_the_hint_says_who_loads_it(fleet_url: str) -> None:
    with Redis.from_url(fleet_url) as client:
        client.execute_command("FUNCTION", "FLUSH")
    result = ran("submit", "x")
    assert result.exit_code == Exit.UNAVAILABLE
    assert "tokenfleet scheduler" in result.stderr


def test_status_shows_lanes_and_workers(fleet_url: str) -> None:
    handle = said("submit", "Hello", "--priority", "medium")
    shard = json.loads(said("status", "--json"))["shards"][0]
    assert shard["models"] == ["m"]
    assert shard["lanes"]["medium"]["depth"] == 1
    assert shard["workers"] == []
    text = said("status")
    assert "no workers: queued jobs wait until one joins" in text
    assert "medium" in text
    said("cancel", handle)
