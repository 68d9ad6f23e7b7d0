"""Two schedulers: whatever happens to the leader, the other one leads within three seconds."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable

import psutil
import pytest
from redis.asyncio import Redis

from producer.fleet import Fleet
from protocol.states import State
from tests.ha.roles import MODEL, Cast, Role
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.waiting import eventually

TAKEOVER_S = 3.0
READS = {"get", "hget", "hmget", "hgetall", "zrange", "zrangebyscore", "zscore", "zcard", "xrange", "xlen", "exists"}
READS |= {"type", "pttl", "time"}
STANDS_BY = "standby"
"""The field in which whoever does not lead says so: all that it may write."""

Fault = Callable[[Role, Proxy], None]


@pytest.fixture
async def fleet(server: Server) -> AsyncIterator[Fleet]:
    async with Fleet(server.url) as client:
        yield client


async def until_it_leads(scheduler: Role) -> None:
    await eventually(lambda: scheduler.told("leader_taken"), timeout_s=20)


async def a_pair(cast: Cast, first_url: str, server: Server, fleet: Fleet) -> tuple[Role, Role]:
    """The leader, and who stands by, with a worker that serves."""
    leader = cast.scheduler(first_url)
    cast.worker(server.url)
    await until_it_leads(leader)
    standby = cast.scheduler(server.url)
    await eventually(lambda: standby.told("scheduler_started"), timeout_s=20)
    await fleet.ready(MODEL)
    return leader, standby


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda leader, _: leader.kill(), id="killed"),
        pytest.param(lambda leader, _: leader.signal(signal.SIGSTOP), id="stopped"),
        pytest.param(lambda _, wire: wire.blackhole(), id="cut-off"),
    ],
)
async def test_another_leads_within_three_seconds(
    cast: Cast, server: Server, fleet: Fleet, fault: Fault, record_property: Callable[[str, object], None]
) -> None:
    async with Proxy(server.port) as wire:
        leader, standby = await a_pair(cast, wire.url, server, fleet)
        begin = asyncio.get_running_loop().time()
        fault(leader, wire)
        await until_it_leads(standby)
        seconds = asyncio.get_running_loop().time() - begin
        record_property("seconds until another leads", round(seconds, 2))
        assert seconds <= TAKEOVER_S
        job = await fleet.submit(model=MODEL, prompt="after the fall", max_tokens=4)
        assert (await job.result(timeout=10)).state is State.COMPLETED


class Watch:
    """What a process has Redis do, as `MONITOR` shows it; a function's own commands follow its call."""

    def __init__(self, role: Role) -> None:
        self._process = psutil.Process(role.pid)
        self._ports: set[int] = set()
        self._lines: list[tuple[str, int, list[str]]] = []

    def look(self) -> None:
        """Learn its connections."""
        self._ports |= {one.laddr.port for one in self._process.net_connections()}

    async def listen(self, redis: Redis) -> None:
        async with redis.monitor() as monitor:
            while True:
                told = await monitor.next_command()
                port = int(told["client_port"] or 0)
                self._lines.append((told["client_type"], port, str(told["command"]).lower().split()))

    def did(self) -> tuple[list[str], list[list[str]]]:
        """The functions that it called, and the commands, with their arguments, that those ran."""
        calls, inner, ours = list[str](), list[list[str]](), False
        for kind, port, words in self._lines:
            if kind == "lua":
                inner += [words] if ours else []
                continue
            ours = port in self._ports
            if ours and words[0] == "fcall":
                calls.append(words[1])
        return calls, inner


async def test_a_leader_that_was_stopped_finds_itself_deposed_and_writes_only_that_it_stands_by(
    cast: Cast, server: Server, fleet: Fleet
) -> None:
    leader, standby = await a_pair(cast, server.url, server, fleet)
    jobs = [await fleet.submit(model=MODEL, prompt=f"one {n}", max_tokens=64) for n in range(40)]
    leader.signal(signal.SIGSTOP)
    jobs += [await fleet.submit(model=MODEL, prompt=f"two {n}", max_tokens=64) for n in range(40)]
    await until_it_leads(standby)
    watch = Watch(leader)
    watch.look()
    listening = asyncio.create_task(watch.listen(fleet.redis))
    await eventually(lambda: watch._lines)
    leader.signal(signal.SIGCONT)
    jobs += [await fleet.submit(model=MODEL, prompt=f"three {n}", max_tokens=64) for n in range(40)]
    await eventually(lambda: leader.told("leader_lost"), timeout_s=10)
    outcomes = [await job.result(timeout=20) for job in jobs]
    watch.look()
    listening.cancel()
    await asyncio.wait([listening])

    calls, commands = watch.did()
    assert "tf1_tick" in calls
    written = [words for words in commands if words[0] not in READS]
    assert [words for words in written if (words[0], words[2]) != ("hset", STANDS_BY)] == []
    assert {outcome.state for outcome in outcomes} == {State.COMPLETED}
    records = [(await job.info()).record for job in jobs]
    assert [record.tries for record in records] == [0] * len(jobs)
