"""What the README tells, on real parts: a chat that streams, a batch from file to file, a job that is cancelled."""

import json
from pathlib import Path

import pytest

from producer.batch import run_batch
from producer.fleet import Fleet
from protocol.errors import ConflictingId, UnknownModel
from protocol.messages import chunk_text
from protocol.states import Priority, State
from tests.journey.conftest import MODEL

QUESTION = [{"role": "user", "content": "What is a token?"}]


async def test_a_journey(fleet: Fleet, tmp_path: Path) -> None:
    # A web backend submits a chat and passes its tokens on as they come.
    chat = await fleet.submit(model=MODEL, messages=QUESTION, stream=True, max_tokens=12)
    text = "".join([piece async for piece in fleet.text(chat)])
    outcome = await chat.result(timeout=20)
    assert outcome.state is State.COMPLETED
    assert text == outcome.text
    assert outcome.usage["completion_tokens"] == 12

    # A reader that comes later, from anywhere, gets the same text by the job's handle.
    late = "".join([piece async for piece in fleet.text(str(chat))])
    assert late == text

    # Whoever looks at the job sees where it ran and when.
    info = await chat.info()
    assert info.record.attempt > 0
    assert info.record.submitted_ms <= info.record.started_ms <= info.record.first_token_ms <= info.record.finished_ms

    # An id submitted again is the same job; with another body it is refused before anything is stored.
    first = await fleet.submit(model=MODEL, prompt="once", id="mine", max_tokens=3)
    again = await fleet.submit(model=MODEL, prompt="once", id="mine", max_tokens=3)
    assert (first.created, again.created) == (True, False)
    with pytest.raises(ConflictingId):
        await fleet.submit(model=MODEL, prompt="twice", id="mine")

    # A model that nobody ever registered is an error at once, not a job that waits for ever.
    with pytest.raises(UnknownModel, match="demo"):
        await fleet.submit(model="nobody-serves-this", prompt="Hello")

    # A delayed job can be cancelled before it ran.
    delayed = await fleet.submit(model=MODEL, prompt="later", delay=3600)
    assert await delayed.cancel() is State.DELAYED
    assert (await delayed.result(timeout=5)).state is State.CANCELLED

    # A batch goes from file to file: one output line for each row, whatever happened to it.
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(row(f"r{number}") for number in range(20)) + row("bad", max_tokens=-1))
    summary = await run_batch(fleet, source, target, on_invalid="skip")
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert sorted(line["custom_id"] for line in lines) == sorted(["bad", *(f"r{number}" for number in range(20))])
    assert (summary.rows_in, summary.rows_out, summary.rows_failed) == (21, 21, 1)
    answers = [line["response"]["body"] for line in lines if line["custom_id"] != "bad"]
    assert all(answer["choices"][0]["message"]["content"] for answer in answers)

    # The operator sees both workers and empty lanes.
    status = await fleet.status()
    assert {worker.label for shard in status.shards for worker in shard.workers} == {"worker-1", "worker-2"}
    assert all(lane.depth == 0 for shard in status.shards for lane in shard.lanes)


async def test_three_followers_and_a_chat_that_overtakes(fleet: Fleet) -> None:
    background = [
        await fleet.submit(model=MODEL, prompt=f"row {n}", priority=Priority.MEDIUM, max_tokens=200, id=f"row-{n}")
        for n in range(40)
    ]
    chat = await fleet.submit(model=MODEL, messages=QUESTION, stream=True, max_tokens=30)
    texts = []
    for _ in range(3):
        pieces = [event.chunks async for event in fleet.follow(chat) if hasattr(event, "chunks")]
        texts.append("".join(chunk_text(chunk) for chunks in pieces for chunk in chunks))
    assert set(texts) == {(await chat.result(timeout=20)).text}
    started = (await chat.info()).record.started_ms
    rest = [(await job.info()).record for job in background]
    assert any(record.started_ms == 0 or record.started_ms > started for record in rest)
    outcomes = [await job.result(timeout=60) for job in background]
    assert all(outcome.state is State.COMPLETED for outcome in outcomes)


def row(custom_id: str, max_tokens: int = 5) -> str:
    body = {"model": MODEL, "messages": [{"role": "user", "content": custom_id}], "max_tokens": max_tokens}
    line = {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(line) + "\n"
