"""Whoever waits for a batch hears that no active worker serves its model, each minute, and that one does again."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from producer.batch import Progress
from producer.fleet import Fleet
from protocol.batches import BatchName, BatchRecord, BatchSpec, BatchStatus
from protocol.settings import Settings
from tests.producer.tiny import MODEL, TinyWorker
from tokenfleet.cli.batch.runners import tell_if_unserved
from tokenfleet.cli.batch.unserved import Unserved, none_serves

AWAY = none_serves(MODEL)
NEWS = Progress("b", 50, 50, 0, 0, 50, 0, 0, 0, 0, 0.0, 0.0, 0.0, None, None, model=MODEL)


RECORD = BatchRecord(
    name=BatchName("default", "batch_a"),
    spec=BatchSpec(input_file_id="file-a", endpoint="/v1/chat/completions", window_s=60.0),
    status=BatchStatus.IN_PROGRESS,
    times_ms={},
    model=MODEL,
)


class Waiting:
    """Who looks each second of a clock of its own."""

    def __init__(self, fleet: Fleet) -> None:
        self.now_s, self.said = 0.0, list[str]()
        self.unserved = Unserved(fleet, self.said.append, lambda: self.now_s)

    async def wait(self, seconds: int, news: Progress) -> list[str]:
        self.said.clear()
        for _ in range(seconds):
            self.now_s += 1
            await self.unserved.look(news)
        return list(self.said)


@pytest.fixture
async def waiting(valkey: Redis) -> AsyncIterator[Waiting]:
    async with Fleet(redis=valkey, settings=Settings()) as fleet:
        yield Waiting(fleet)


async def test_it_is_told_after_seconds_and_again_each_minute(waiting: Waiting) -> None:
    assert await waiting.wait(2, NEWS) == []
    assert await waiting.wait(2, NEWS) == [AWAY]
    assert await waiting.wait(50, NEWS) == []
    assert await waiting.wait(60, NEWS) == [AWAY]


async def test_nothing_is_told_where_rows_end_or_none_is_left(waiting: Waiting) -> None:
    for done in range(1, 20):
        assert await waiting.wait(2, replace(NEWS, rows_out=done)) == []
    assert await waiting.wait(20, replace(NEWS, rows_out=50)) == []
    assert await waiting.wait(20, replace(NEWS, model="")) == []


async def test_a_worker_that_comes_is_told_once(waiting: Waiting, valkey: Redis) -> None:
    assert await waiting.wait(3, NEWS) == [AWAY]
    await TinyWorker(valkey).join()
    assert await waiting.wait(100, NEWS) == [f"an active worker serves {MODEL} now"]
    assert await waiting.wait(1, replace(NEWS, rows_out=1)) == []


async def test_a_model_that_another_pool_serves_is_not_served(waiting: Waiting, valkey: Redis) -> None:
    await TinyWorker(valkey).join(["another"])
    assert await waiting.wait(3, NEWS) == [AWAY]


async def test_a_look_at_a_submitted_batch_tells_it(valkey: Redis, capsys: pytest.CaptureFixture[str]) -> None:
    async with Fleet(redis=valkey, settings=Settings()) as fleet:
        await tell_if_unserved(fleet, RECORD)
        assert capsys.readouterr() == ("", f"{AWAY}\n")
        await tell_if_unserved(fleet, RECORD.model_copy(update={"status": BatchStatus.COMPLETED}))
        await TinyWorker(valkey).join()
        await tell_if_unserved(fleet, RECORD)
    assert capsys.readouterr() == ("", "")
