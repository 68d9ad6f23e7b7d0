"""kill -9 of workers in mid-stream, on real processes: the follower's text is that of an undisturbed run."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from producer.events import Restart, Tokens
from producer.fleet import Fleet
from producer.jobs import Job
from producer.workers import read_roster
from protocol.messages import Outcome
from protocol.wire import JsonObject
from tests.support.waiting import eventually
from tokenfleet.up.commands import FleetOptions
from tokenfleet.up.fleet import EmbeddedFleet

MODEL = "demo"
SLOW = 0.5
TOKENS = 240
CHAT = {"messages": [{"role": "user", "content": "Tell me of the sea"}], "max_tokens": TOKENS, "ignore_eos": True}
COMPLETION = {"prompt": "It was a dark night. ", "max_tokens": TOKENS, "ignore_eos": True}
PENALISED = {**CHAT, "presence_penalty": 0.5}


@pytest.fixture
async def embedded(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EmbeddedFleet]:
    monkeypatch.setenv("TOKENFLEET_LEASE_S", "2")
    async with EmbeddedFleet(FleetOptions(engine="sim", model=MODEL, sim_speed=SLOW, workers=3)) as fleet:
        await fleet.ready(60)
        yield fleet


class Reading:
    """A follower: the text that it has, how often that began anew, and the ids of the frames."""

    def __init__(self, fleet: Fleet, job: Job) -> None:
        self.job, self.text, self.restarts = job, "", 0
        self.ids: list[str] = []
        self._task = asyncio.create_task(self._read(fleet))

    async def _read(self, fleet: Fleet) -> None:
        async for event in fleet.follow(self.job):
            if isinstance(event, Restart):
                self.text, self.restarts = "", self.restarts + 1
            elif isinstance(event, Tokens):
                self.text += event.text
                self.ids.append(event.id)

    async def has(self, words: int) -> None:
        await eventually(lambda: len(self.text.split()) >= words, timeout_s=30)

    async def outcome(self) -> Outcome:
        outcome = await self.job.result(timeout=60)
        await self._task
        return outcome


async def undisturbed(fleet: Fleet, body: JsonObject) -> Outcome:
    job = await fleet.submit(model=MODEL, body=body)
    return await job.result(timeout=60)


async def kill_its_worker(embedded: EmbeddedFleet, fleet: Fleet, reading: Reading) -> None:
    """kill -9 of the process that runs the job now."""
    runs_on = (await reading.job.info()).record.worker
    label = next(one.record.label for one in (await read_roster(fleet.redis)).workers if one.record.id == runs_on)
    embedded.process(label).kill()


@pytest.mark.parametrize("body", [CHAT, COMPLETION], ids=["chat", "completion"])
async def test_a_stream_survives_two_workers(embedded: EmbeddedFleet, body: JsonObject) -> None:
    async with Fleet(embedded.redis_url) as fleet:
        whole = await undisturbed(fleet, body)
        reading = Reading(fleet, await fleet.submit(model=MODEL, body=body, stream=True))
        for words in (20, 120):
            await reading.has(words)
            await kill_its_worker(embedded, fleet, reading)
            await reading.has(words + 60)
        outcome = await reading.outcome()
        assert (reading.text, reading.restarts) == (whole.text, 0)
        assert outcome.text == whole.text
        assert outcome.usage["completion_tokens"] == TOKENS
        assert outcome.usage["prompt_tokens"] == whole.usage["prompt_tokens"]
        numbers = [int(frame_id.split("-")[1]) for frame_id in reading.ids]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len({frame_id.split("-")[0] for frame_id in reading.ids}) == 3
        late = Reading(fleet, reading.job)
        await late.outcome()
        assert (late.text, late.restarts) == (whole.text, 0)


async def test_what_cannot_be_continued_says_restart(embedded: EmbeddedFleet) -> None:
    async with Fleet(embedded.redis_url) as fleet:
        whole = await undisturbed(fleet, PENALISED)
        reading = Reading(fleet, await fleet.submit(model=MODEL, body=PENALISED, stream=True))
        await reading.has(20)
        await kill_its_worker(embedded, fleet, reading)
        outcome = await reading.outcome()
        assert (reading.text, reading.restarts) == (whole.text, 1)
        assert outcome.usage == whole.usage
