"""`tokenfleet dead` on a real server: jobs that killed their worker three times, looked at and run anew."""

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from click.testing import Result as Ran
from redis import Redis

from protocol import keys
from protocol.call import run_sync
from protocol.functions import register, requeue
from protocol.messages import ModelRecord
from protocol.states import State
from tests.support.builders import SHARD, a_handle
from tests.support.driver import Driver
from tokenfleet.cli import main as cli
from tokenfleet.cli.exits import Exit

CANARY = "canary-7261"
BODY = b'{"model":"m","messages":[{"role":"user","content":"' + CANARY.encode() + b'"}]}'


@pytest.fixture
def dead(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Two jobs, `a` and `b`, that were set aside in this order."""
    monkeypatch.setenv("TOKENFLEET_REDIS_URL", valkey_url)
    monkeypatch.setenv("COLUMNS", "200")
    with Redis.from_url(valkey_url) as client:
        run_sync(client, register("m", ModelRecord(pool=SHARD.pool)))
        driver = Driver(client)
        for own_id in "ab":
            handle, attempt = driver.running(own_id, body=BODY)
            for _ in range(2):
                assert driver.run(requeue(handle, attempt, "w1", "strike", why="the engine died")) == "ok"
                attempt = driver.restarted(handle)
            assert driver.run(requeue(handle, attempt, "w1", "strike", why="out of memory\x1b[2J")) == "dead"
        yield driver
        driver.check()


def ran(*arguments: str) -> Ran:
    return CliRunner().invoke(cli, ["dead", *arguments])


def said(*arguments: str) -> str:
    """The stdout of a command that ends well."""
    result = ran(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def said_json(*arguments: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in said(*arguments, "--json").splitlines()]


def refused(*arguments: str) -> tuple[int, str]:
    result = ran(*arguments, "--json")
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])["error"]["code"]


def test_the_list_has_a_line_for_each(dead: Driver) -> None:
    first, second = said_json("list")
    assert {name: first[name] for name in ("handle", "code", "strikes", "model")} == {
        "handle": str(a_handle("b")),
        "code": "struck_out",
        "strikes": 3,
        "model": "m",
    }
    assert second["handle"] == str(a_handle("a"))
    text = said("list")
    assert all(part in text for part in ("handle", "pool.0.t.a", "pool.0.t.b", "struck_out", "strikes"))
    assert len(said_json("list", "--limit", "1")) == 1
    assert said("list", "--pool", "other").strip() == "no job is set aside"


def test_a_job_is_shown_with_its_history_and_without_its_prompt(dead: Driver) -> None:
    handle = str(a_handle())
    (info,) = said_json("show", handle)
    assert (info["handle"], info["state"], info["strikes"], info["error"]) == (handle, "failed", 3, "struck_out")
    assert info["reason"] == "its engine or worker died three times while it ran"
    history = info["history"]
    assert isinstance(history, list)
    assert [(row["worker"], row["fault"]) for row in history] == [("label-w1", "strike")] * 3
    assert "body" not in info
    text = said("show", handle)
    for part in ("label-w1", "strike", "the engine died", "out of memory\\x1b[2J", "struck_out", "three times"):
        assert part in text
    assert CANARY not in text


def test_the_prompt_is_shown_when_it_is_asked_for(dead: Driver) -> None:
    (info,) = said_json("show", str(a_handle()), "--body")
    assert info["body"] == json.loads(BODY)
    assert CANARY in said("show", str(a_handle()), "--body")


def test_a_replayed_job_is_queued_again(dead: Driver) -> None:
    handle = a_handle()
    assert said("replay", str(handle)) == f"{handle}  queued again\n"
    job = dead.job(handle)
    assert (job.state, job.strikes) == (State.QUEUED, 0)
    assert [row["handle"] for row in said_json("list")] == [str(a_handle("b"))]
    assert refused("replay", str(handle)) == (Exit.INVALID, "not_dead")


def test_all_of_a_pool_are_replayed_oldest_first_but_for_what_can_not_be_read(dead: Driver) -> None:
    assert said("replay", "--all", "--pool", "other") == ""
    dead.redis.hset(keys.job(a_handle("b")), "spec", "{")
    assert said_json("replay", "--all", "--pool", SHARD.pool) == [
        {"handle": str(a_handle("a")), "replayed": True},
        {"handle": str(a_handle("b")), "replayed": False},
    ]
    assert "cannot be read" in said("replay", "--all")
    (left,) = said_json("list")
    assert (left["code"], left["strikes"], left["model"]) == ("malformed", None, None)
    assert str(a_handle("b")) in said("show", str(a_handle("b")), "--body")
    assert refused("replay", str(a_handle("b"))) == (Exit.INVALID, "not_dead")


@pytest.mark.parametrize("command", ["show", "replay"])
def test_a_job_that_is_not_set_aside_is_refused(dead: Driver, command: str) -> None:
    living = dead.submit("c").handle
    assert refused(command, str(living)) == (Exit.INVALID, "not_dead")
    assert refused(command, str(a_handle("nobody"))) == (Exit.INVALID, "not_dead")
