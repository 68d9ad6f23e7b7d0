"""What a reader sees, and when it is subscribed."""

from collections.abc import AsyncIterator

from redis.asyncio import Redis

from producer.events import End, Event, Restart, Tokens
from producer.fleet import Fleet
from producer.jobs import Job
from protocol import keys
from protocol.call import Call, run
from tests.producer.tiny import MODEL
from tests.support.waiting import eventually

WORDS = [f"word{n} " for n in range(40)]
CHAT = [{"role": "user", "content": "".join(WORDS)}]


async def streaming(fleet: Fleet) -> Job:
    return await fleet.submit(model=MODEL, messages=CHAT, stream=True)


async def collect(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


def text_of(events: list[Event]) -> str:
    """What a reader has in the end: a restart takes back what came before."""
    text = ""
    for event in events:
        match event:
            case Tokens():
                text += event.text
            case Restart():
                text = ""
    return text


def outcome_text(events: list[Event]) -> str:
    end = events[-1]
    assert isinstance(end, End)
    return end.outcome.text


async def confirmed(redis: Redis, job: Job, followers: int = 1) -> None:
    """Until the channel has its subscriber; one hub subscribes once for all its followers."""
    channel = keys.tokens(job.handle)

    async def subscribed() -> bool:
        found = await run(redis, Call(("PUBSUB", "NUMSUB", channel), lambda reply: int(reply[1])))
        return found >= followers

    await eventually(subscribed)
