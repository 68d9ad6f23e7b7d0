"""Networks that are slow, cut, or torn to pieces; clocks that differ; subscribers that don't listen."""

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from functools import partial

from protocol import keys
from protocol.call import Call, run
from tests.faults.matrix import Fault, Seen
from tests.faults.stage import LEASE_S, MODEL, RERUN_S, NotHere, Stage, now, read, undisturbed
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

HOUR_S = 3_600
JOBS = 6
PATIENT = {"TOKENFLEET_LEASE_S": "10"}
"""Where each beat takes hundreds of packets: nobody may count as dead for that, however busy the machine is."""
PATH_FAULTS = "tests/producer/test_token_path_faults.py"


async def _through(stage: Stage, env: dict[str, str] | None = None) -> Proxy:
    """A scheduler, a worker and the client, all behind one proxy."""
    proxy = await stage.proxy()
    stage.fleet = await stage.client(proxy.url)
    stage.scheduler(url=proxy.url, env=env)
    stage.worker(url=proxy.url, env=env)
    await stage.active()
    return proxy


async def _whole(stage: Stage, words: int, prefix: str = "n") -> float:
    """Some streams at once, each whole and run once; how long they took."""
    began_at = now()
    jobs = [await stage.submit(f"{prefix}{n}", words=words) for n in range(JOBS)]
    readings = [asyncio.create_task(read(stage.fleet, job)) for job in jobs]
    for job, reading in zip(jobs, readings, strict=True):
        await undisturbed(job, reading)
        record = (await job.info()).record
        assert (record.history, record.strikes) == ((), 0), "it ran more than once"
    return now() - began_at


async def slow(stage: Stage) -> Seen:
    proxy = await _through(stage)
    usual_s = await _whole(stage, 60, "usual")
    proxy.latency_s = 0.1
    slow_s = await _whole(stage, 60, "slow")
    return Seen(f"{JOBS} streams whole in {slow_s:.1f} s instead of {usual_s:.1f} s, each run once")


async def sliced(stage: Stage) -> Seen:
    proxy = await _through(stage, PATIENT)
    proxy.slice_bytes = 7
    took_s = await _whole(stage, 30)
    return Seen(f"{JOBS} streams whole in {took_s:.1f} s, each run once")


async def reset(stage: Stage) -> Seen:
    proxy = await _through(stage)
    jobs, readings = [], []
    for number in range(JOBS):
        job = await stage.submit(f"n{number}")
        jobs.append(job)
        readings.append(asyncio.create_task(read(stage.fleet, job)))
        await stage.spoken(job)
        proxy.reset()
    reset_at = now()
    after = await stage.submit("after", words=5)
    await after.result(timeout=20)
    recovery_s = now() - reset_at
    for job, reading in zip(jobs, readings, strict=True):
        await undisturbed(job, reading)
        assert (await job.info()).record.strikes == 0
    return Seen(f"{JOBS} times all connections, in mid-stream; every stream whole", recovery_s)


async def blackholed(stage: Stage) -> Seen:
    """Connections stay open and nothing passes, for a worker alone."""
    proxy = await stage.proxy()
    stage.scheduler()
    stage.worker("cut", url=proxy.url)
    await stage.active()
    return await _moves(stage, proxy.blackhole, proxy.mend)


async def _moves(stage: Stage, cut: Callable[[], object], mend: Callable[[], object]) -> Seen:
    """The only worker is cut off in mid-stream, another comes."""
    worker = stage.roles[-1]
    job = await stage.submit(words=400)
    reading = asyncio.create_task(read(stage.fleet, job))
    await stage.running(job)
    first = (await job.info()).record.attempt
    cut()
    cut_at, cut_at_s = now(), time.time()
    stage.worker("w2")
    await eventually(lambda: worker.says("lease_over"), 10)
    stopped_s = worker.said_at("lease_over") - cut_at_s
    assert stopped_s <= LEASE_S, f"it stopped after {stopped_s:.1f} s, its lease is {LEASE_S:g} s"

    async def moved() -> bool:
        return (await job.info()).record.attempt > first

    await eventually(moved, 10)
    recovery_s = now() - cut_at
    moved_at_s = (await job.info()).record.history[-1].at_ms / 1000
    assert worker.said_at("lease_over") < moved_at_s, "the job was given to another while it still ran here"
    await undisturbed(job, reading)
    mend()
    await eventually(lambda: _both_idle(stage), 10)
    assert recovery_s <= RERUN_S, f"the job moved after {recovery_s:.1f} s"
    return Seen(f"it stopped by its own clock after {stopped_s:.1f} s; the job moved, it came back anew", recovery_s)


async def _both_idle(stage: Stage) -> bool:
    """The one that was cut off is back, and its slot is free."""
    return [worker.report.running for worker in await stage.workers() if worker.state == "active"] == [0, 0]


async def cut_by_namespace(stage: Stage) -> Seen:
    name, outer, host = _namespace(stage)
    proxy = await stage.proxy(host)
    stage.scheduler()
    stage.worker("cut", url=proxy.url, namespace=name)
    await stage.active()
    return await _moves(stage, partial(_ip, "link", "set", outer, "down"), partial(_ip, "link", "set", outer, "up"))


def _namespace(stage: Stage) -> tuple[str, str, str]:
    """A network namespace behind a pair of virtual links; its name, our end of the pair, and our address there."""
    tag, net = secrets.token_hex(3), f"10.213.{secrets.randbelow(256)}"
    name, outer, inner = f"tf-{tag}", f"tfo{tag}", f"tfi{tag}"
    if os.geteuid() != 0 or shutil.which("ip") is None or not _ip("netns", "add", name, check=False):
        raise NotHere("network namespaces need root and `ip netns`")
    stage.at_the_end(partial(_ip, "netns", "del", name))
    _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
    _ip("address", "add", f"{net}.1/30", "dev", outer)
    _ip("link", "set", outer, "up")
    _ip("-n", name, "address", "add", f"{net}.2/30", "dev", inner)
    _ip("-n", name, "link", "set", inner, "up")
    return name, outer, f"{net}.1"


def _ip(*arguments: str, check: bool = True) -> bool:
    done = subprocess.run(["ip", *arguments], check=check, capture_output=True)  # noqa: S607 - wherever `ip` is
    return done.returncode == 0


async def clocks_differ(stage: Stage, hours: int) -> Seen:
    stage.scheduler(shift_s=hours * HOUR_S)
    stage.worker("w1")
    stage.worker("w2", shift_s=-hours * HOUR_S)
    await stage.active(2)
    lives = {worker.id for worker in await stage.workers()}
    took_s = await _whole(stage, 60)
    order = ("submit", "--model", MODEL, "--max-tokens", "5", "--deadline", "30", "--wait", "a prompt")
    producer = stage.role("producer", *order, shift_s=hours * HOUR_S)
    await producer.dies()
    assert producer.code == 0, "a producer with another clock got no answer"
    assert {worker.id for worker in await stage.workers()} == lives, "workers were given up"
    return Seen(f"nothing changed: {JOBS} streams in {took_s:.1f} s, no lease lapsed")


async def slow_subscriber(stage: Stage) -> Seen:
    await stage.crew()
    job = await stage.submit(words=300)
    lazy = socket.create_connection(("127.0.0.1", stage.server.port))
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    stage.at_the_end(lazy.close)
    channel = keys.tokens(job.handle)
    lazy.sendall(b"CLIENT SETNAME lazy\r\nSUBSCRIBE " + channel.encode() + b" flood\r\n")
    reading = asyncio.create_task(read(stage.fleet, job))
    await eventually(lambda: _listed(stage), 5)
    await stage.running(job)
    while await _listed(stage):
        await run(stage.fleet.redis, Call(("PUBLISH", "flood", b"x" * 65_536), int))
    outcome = await undisturbed(job, reading)
    late = await read(stage.fleet, job)
    assert late.text == outcome.text
    return Seen("Redis cut it; the others heard all, and it can read the log")


async def _listed(stage: Stage) -> bool:
    return await run(stage.fleet.redis, Call(("CLIENT", "LIST"), lambda told: b"name=lazy " in told))


ROWS = (
    Fault("200 ms of latency", "correct, slower, no duplicate", slow),
    Fault("connections are reset", "correct, no duplicate", reset),
    Fault("packets are sliced", "correct, no duplicate", sliced),
    Fault(
        "a worker's connections pass nothing on",
        "it stops within its lease, the job moves",
        blackholed,
    ),
    Fault(
        "a worker is cut off by the network (a namespace)",
        "it stops within its lease, the job moves, the slot is freed",
        cut_by_namespace,
    ),
    Fault("wall clocks an hour ahead and an hour behind", "nothing changes", partial(clocks_differ, hours=1)),
    Fault(
        "a subscriber that does not read",
        "Redis cuts it, others are unaffected",
        slow_subscriber,
        extra=("--client-output-buffer-limit", "pubsub 256kb 0 0"),
    ),
    Fault(
        "CLIENT KILL of subscribers",
        "they recover from the log, nothing lost or doubled",
        tests=(
            f"{PATH_FAULTS}::test_followers_that_are_cut_off_in_the_middle_lose_nothing_and_see_nothing_twice",
            f"{PATH_FAULTS}::test_a_channel_that_goes_silent_is_read_from_the_log",
        ),
    ),
    Fault(
        "the log is trimmed past the reader, or expired",
        "explicit `truncated`, the result still there",
        tests=(
            "tests/producer/test_token_path.py::test_a_trimmed_log_says_truncated",
            "tests/producer/test_token_path.py::test_an_expired_log_is_answered_by_the_result",
        ),
    ),
)
