"""Servers and fleets for the doctor's tests, and what it finds there."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from protocol import functions, library, reads, store
from protocol.call import Call, run_sync
from protocol.messages import ModelRecord
from protocol.settings import Settings
from tests.support.builders import tick_as
from tests.support.driver import Driver
from tests.support.servers import Server, valkey_binary
from tokenfleet.doctor.examine import examine
from tokenfleet.doctor.finding import Finding

GOOD = ("--maxmemory", "1gb", "--maxmemory-policy", "noeviction", "--client-output-buffer-limit", "pubsub 64mb 16mb 60")
PATIENT = functions.TickTimes(lead_ms=600_000, lease_ms=600_000, gap_ms=600_000)


@contextmanager
def running(folder: Path, *extra: str, append_only: bool = True, binary: Path | None = None) -> Iterator[Server]:
    server = Server(binary or valkey_binary(), folder, append_only=append_only, extra=[*GOOD, *extra])
    server.start()
    try:
        yield server
    finally:
        server.stop()


def well(driver: Driver) -> None:
    """A library, a leader and a standby, a worker that takes jobs."""
    run_sync(driver.redis, Call(("FUNCTION", "LOAD", "REPLACE", library.source()), bool))
    driver.run(functions.register("m", ModelRecord(pool="pool")))
    # However slow this machine is, leader, standby and worker were heard just now.
    assert driver.run(tick_as(times=PATIENT)).leads
    assert not driver.run(tick_as("another", times=PATIENT)).leads
    driver.join(lease_ms=PATIENT.lead_ms)
    ahead_ms = driver.run(reads.store_time_ms()) + PATIENT.lead_ms
    driver.redis.hset("tf:{pool.0}:clock", "standby", str(ahead_ms))
    driver.redis.hset("tf:{pool.0}:worker:w1", "at", str(ahead_ms))


async def examined(url: str, **more: Any) -> list[Finding]:
    redis = store.connect(url)
    try:
        return await examine(redis, more.pop("settings", Settings(redis_url=url)), **more)
    finally:
        await redis.aclose()


def levels(findings: list[Finding]) -> dict[str, str]:
    """The worst level of each check."""
    order = ("ok", "warn", "fail")
    found: dict[str, str] = {}
    for finding in findings:
        found[finding.check] = max(found.get(finding.check, "ok"), finding.level, key=order.index)
    return found
