"""`tokenfleet top` in a real terminal, over a Redis that comes and goes; and for scripts."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest

from protocol import functions
from protocol.messages import ModelRecord
from tests.support import tmux
from tests.support.driver import Driver
from tests.support.servers import Server
from tests.support.waiting import eventually

TOP = (sys.executable, "-m", "tokenfleet", "top")
ROOT = Path(__file__).parents[2]
WITHIN_S = 60.0
TOKENS = count(100, 10)
"""What a worker has generated when it reports again."""


@pytest.fixture
def fleet(server: Server) -> Iterator[Driver]:
    """A leader, a worker that runs a job, and three jobs that wait."""
    with server.client() as client:
        driver = Driver(client)
        driver.run(functions.register("m", ModelRecord(pool="pool")))
        driver.running("a")
        for number in range(3):
            driver.submit(f"waits-{number}")
        driver.join(join=False, load_score=0.5, running=1, capacity=4, generated_tokens=10)
        yield driver


@pytest.fixture
async def window() -> AsyncIterator[tmux.Terminal]:
    if not tmux.is_there() and tmux.is_required():
        pytest.fail(f"{tmux.REQUIRE_TMUX} is set, but there is no tmux")
    if not tmux.is_there():
        pytest.skip("no tmux on the path")
    with tmux.terminal() as opened:
        yield opened


def start(window: tmux.Terminal, server: Server, *options: str) -> None:
    # A shell that exports its size exports that of its beginning.
    variables = {"TOKENFLEET_REDIS_URL": server.url, "COLUMNS": "80", "LINES": "24"}
    window.start([*TOP, "--every", "100ms", *options], ROOT, variables)


async def shows(window: tmux.Terminal, *texts: str) -> str:
    """Wait until the screen has all of these; what stands there then."""

    def found() -> str:
        seen = window.screen()
        missing = [text for text in texts if text not in seen]
        assert not missing, f"no {missing} in\n{seen}"
        return seen

    return await eventually(found, WITHIN_S)


async def test_it_shows_the_fleet_says_what_is_wrong_and_ends_by_q(
    window: tmux.Terminal, server: Server, fleet: Driver
) -> None:
    start(window, server)
    seen = await shows(window, "label-w1", "high 3", "█████░░░░░ 0.50", "1/4", "no scheduler leads pool.0")
    assert len(seen.splitlines()) <= 24
    assert max(map(len, seen.splitlines())) <= 80

    def is_led() -> bool:
        fleet.lead()
        return "no scheduler" not in window.screen()

    await eventually(is_led, WITHIN_S)
    server.kill(written=True)
    await shows(window, "Redis is away", "label-w1", "old")
    server.start()

    def is_back() -> bool:
        seen = window.screen()
        return "Redis is away" not in seen and "label-w1" in seen

    await eventually(is_back, WITHIN_S)
    window.press("q")
    seen = await shows(window, f"{tmux.ENDED} 0")
    assert "label-w1" not in seen
    window.press("echo is on", "Enter")
    await shows(window, "echo is on\ngot echo is on")


async def test_it_says_that_redis_is_silent_and_ends_by_ctrl_c_meanwhile(
    window: tmux.Terminal, server: Server, fleet: Driver
) -> None:
    del fleet
    start(window, server)
    await shows(window, "label-w1")
    server.pause()
    await shows(window, "Redis is silent")
    window.press("C-c")
    await shows(window, f"{tmux.ENDED} 0")
    server.resume()


async def test_it_waits_for_a_redis_that_is_not_there_yet(window: tmux.Terminal, server: Server) -> None:
    server.stop()
    start(window, server)
    await shows(window, "Redis is away")
    server.start()
    await shows(window, "No worker ever registered a model here")
    window.resize(60, 12)
    await eventually(lambda: 0 < max(map(len, window.screen().splitlines()), default=0) <= 60, WITHIN_S)


async def test_a_refusal_ends_it_with_the_reason(window: tmux.Terminal, server: Server) -> None:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "-exists")
        Driver(client).run(functions.register("m", ModelRecord(pool="pool")))
        start(window, server)
        await shows(window, "the Redis user may not do this", f"{tmux.ENDED} 4")


async def top(server: Server, *options: str) -> tuple[int, str, str]:
    environment = os.environ | {"TOKENFLEET_REDIS_URL": server.url, "COLUMNS": "80"}
    process = await asyncio.create_subprocess_exec(
        *TOP, *options, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_once_prints_a_look_with_speeds(server: Server, fleet: Driver) -> None:
    code, out = await once(server, fleet, "--json")
    (told,) = [json.loads(line) for line in out.splitlines()]
    (shard,) = told["shards"]
    assert (code, shard["lanes"]["high"]["depth"], shard["workers"][0]["jobs"]) == (0, 3, ["pool.0.t.a"])
    assert told["tokens_per_s"] == shard["workers"][0]["tokens_per_s"] > 0
    code, out = await once(server, fleet)
    assert code == 0
    assert "label-w1" in out
    assert re.search(r"^[1-9][\d,]* tokens/s", out, re.MULTILINE)
    assert "\x1b" not in out


async def once(server: Server, fleet: Driver, *options: str) -> tuple[int, str]:
    """Exit code and output, while the worker reports more and more tokens."""
    looking = asyncio.create_task(top(server, "--once", *options))

    def reported() -> bool:
        fleet.join(join=False, generated_tokens=next(TOKENS))
        return looking.done()

    await eventually(reported, WITHIN_S)
    code, out, _ = await looking
    return code, out


async def test_without_a_terminal_it_says_what_to_add(server: Server) -> None:
    code, _, err = await top(server)
    assert (code, "--once" in err) == (2, True)
