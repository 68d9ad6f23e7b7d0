"""Whoever runs a batch hears that Redis is away, and that it is back, once each."""

from dataclasses import dataclass, field
from typing import cast

from redis.exceptions import ConnectionError as RedisGone

from producer.fleet import Fleet
from protocol.settings import Settings
from tests.support.waiting import eventually
from tokenfleet.cli.batch.outages import outages_told


@dataclass
class Flaky:
    """A fleet whose Redis answers or not, as it is told."""

    settings: Settings
    there: bool = True
    asked: int = 0
    said: list[str] = field(default_factory=list)

    @property
    def redis(self) -> "Flaky":
        return self

    async def execute_command(self, *_: object) -> bytes:
        self.asked += 1
        if not self.there:
            raise RedisGone
        return b"PONG"


async def test_an_outage_and_its_end_are_told_once_each() -> None:
    fleet = Flaky(Settings(redis_url="redis://me:secret@host:6379/0"))

    async def asked_again() -> None:
        before = fleet.asked
        await eventually(lambda: fleet.asked >= before + 2)

    async with outages_told(cast("Fleet", fleet), fleet.said.append, every_s=0.001):
        await asked_again()
        assert fleet.said == []
        for _ in range(2):
            fleet.there = False
            await asked_again()
            fleet.there = True
            await asked_again()
    away, back = "Redis at redis://host:6379/0 does not answer: the batch waits for it", "is back"
    assert [fleet.said[0], fleet.said[2]] == [away, away]
    assert [back in line for line in fleet.said] == [False, True, False, True]
