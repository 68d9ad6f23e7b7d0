"""The demo's chat: an online job in the middle of a batch, its tokens live, and how many it overtook."""

from dataclasses import dataclass

from redis.asyncio import Redis

from producer.events import Restart, Tokens
from producer.fleet import Fleet
from producer.jobs import JobInfo
from protocol import reads
from protocol.call import run
from protocol.handle import Shard
from protocol.messages import Outcome
from protocol.states import Priority
from tokenfleet.demo.show import View

QUESTION = "What is the capital of France?"
MAX_TOKENS = 48
MANY = 10_000
"""More than the demo ever queues."""


@dataclass(frozen=True, slots=True)
class Chat:
    """How it went."""

    info: JobInfo
    outcome: Outcome
    answer: str
    overtook: int


async def hold_chat(fleet: Fleet, model: str, shard: Shard, view: View) -> Chat:
    """Ask the question, show the answer as it comes.

    Raises:
        FleetError: what `submit` and `follow` raise.
    """
    before, still_queued = await _queued(fleet.redis, shard), None
    view.scene.question = QUESTION
    messages = [{"role": "user", "content": QUESTION}]
    job = await fleet.submit(
        model=model, messages=messages, priority="high", stream=True, max_tokens=MAX_TOKENS, temperature=0
    )
    async for event in job.follow():
        match event:
            case Tokens():
                if still_queued is None:
                    still_queued = await _queued(fleet.redis, shard)
                view.chat(event.text)
            case Restart():
                view.scene.answer.clear()
    view.scene.answered = True
    overtook = len(before & (still_queued or set()))
    return Chat(await job.info(), await job.result(), "".join(view.scene.answer), overtook)


async def _queued(redis: Redis, shard: Shard) -> set[str]:
    """The batch rows that wait in their lane."""
    return {entry.ref for entry in await run(redis, reads.lane_head(shard, Priority.MEDIUM, MANY))}
