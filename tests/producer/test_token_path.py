"""Following a job over real pub/sub: early, late, several at once, from a cursor, over a restart."""

import asyncio

import pytest
from redis.asyncio import Redis

from producer.events import End, Restart, Tokens, Truncated
from producer.fleet import Fleet
from producer.hub import SILENCE_S
from producer.reader import FRAMES_A_READ
from protocol import errors, keys
from protocol.call import Call, run
from protocol.states import State
from tests.producer.reading import CHAT, WORDS, collect, confirmed, outcome_text, streaming, text_of
from tests.producer.tiny import MODEL, TinyWorker, serving
from tests.support.waiting import eventually


async def test_an_early_a_late_and_three_followers_at_once_see_the_stored_text(
    fleet: Fleet, worker: TinyWorker, redis: Redis
) -> None:
    job = await streaming(fleet)
    early = [asyncio.create_task(collect(job.follow())) for _ in range(3)]
    await confirmed(redis, job)
    attempt = await worker.take_one()
    await attempt.say(*WORDS[:20])
    middle = asyncio.create_task(collect(job.follow()))
    await attempt.say(*WORDS[20:])
    await attempt.finish()
    seen = [*await asyncio.gather(*early, middle), await collect(job.follow())]
    for events in seen:
        ids = [event.id for event in events if isinstance(event, Tokens)]
        assert ids == [f"{attempt.number}-{n}" for n in range(1, 41)]
        assert text_of(events) == outcome_text(events) == "".join(WORDS)


async def test_a_long_log_is_read_page_by_page_and_at_once(fleet: Fleet, worker: TinyWorker) -> None:
    """No page waits for the silence after which a follower looks anyhow."""
    job = await streaming(fleet)
    attempt = await worker.take_one()
    frames = 3 * FRAMES_A_READ
    await attempt.say(*(f"{n} " for n in range(frames)))
    await attempt.finish()
    async with asyncio.timeout(SILENCE_S - 1):
        events = await collect(job.follow())
    ids = [event.id for event in events if isinstance(event, Tokens)]
    assert ids == [f"{attempt.number}-{n}" for n in range(1, frames + 1)]
    assert isinstance(events[-1], End)


@pytest.mark.parametrize("words", [20, 40])
async def test_what_a_new_job_said_before_its_follower_was_subscribed_is_read(
    fleet: Fleet, worker: TinyWorker, words: int
) -> None:
    """Whether something is heard after it or nothing: far sooner than what else a silence would bring."""
    job = await streaming(fleet)
    attempt = await worker.take_one()
    await attempt.say(*WORDS[:words])
    if words == len(WORDS):
        await attempt.finish()
    following = asyncio.create_task(collect(fleet.follow(job, new=True)))
    if words < len(WORDS):
        await confirmed(fleet.redis, job)
        await attempt.say(*WORDS[words:])
        await attempt.finish()
    async with asyncio.timeout(SILENCE_S - 1):
        events = await following
    assert text_of(events) == outcome_text(events) == "".join(WORDS)


async def test_followers_of_many_jobs_share_one_connection(fleet: Fleet, worker: TinyWorker, redis: Redis) -> None:
    jobs = [await streaming(fleet) for _ in range(20)]
    following = [asyncio.create_task(collect(job.follow())) for job in jobs]
    async with serving(worker):
        seen = await asyncio.gather(*following)
    assert [text_of(events) for events in seen] == ["".join(WORDS)] * 20


async def test_a_channel_is_left_with_its_last_follower(fleet: Fleet, worker: TinyWorker, redis: Redis) -> None:
    job = await streaming(fleet)
    attempt = await worker.take_one()
    await attempt.say("a ")
    events = job.follow()
    assert isinstance(await anext(events), Tokens)
    await confirmed(redis, job)
    await events.aclose()

    async def left() -> bool:
        channel = keys.tokens(job.handle)
        return await run(redis, Call(("PUBSUB", "NUMSUB", channel), lambda reply: int(reply[1]) == 0))

    await eventually(left)
    await attempt.finish()


async def test_a_reader_goes_on_from_its_cursor(fleet: Fleet, worker: TinyWorker) -> None:
    job = await streaming(fleet)
    attempt = await worker.take_one()
    await attempt.say(*WORDS)
    await attempt.finish()
    whole = await collect(job.follow())
    fifth = whole[4]
    assert isinstance(fifth, Tokens)
    assert await collect(job.follow(after=fifth.id)) == whole[5:]
    end = whole[-1]
    assert isinstance(end, End)
    assert await collect(job.follow(after=end.id)) == [end]
    with pytest.raises(errors.InvalidRequest, match="after"):
        await collect(job.follow(after="nonsense"))


async def test_a_second_attempt_restarts_the_text(fleet: Fleet, worker: TinyWorker) -> None:
    job = await streaming(fleet)
    first = await worker.take_one()
    await first.say("half ", "of ")
    following = asyncio.create_task(collect(job.follow()))
    await first.give_back()
    second = await worker.take_one()
    await second.say("all ", "of ", "it ")
    await second.finish()
    for events in (await following, await collect(job.follow())):
        assert [type(event) for event in events] == [Tokens, Tokens, Restart, Tokens, Tokens, Tokens, End]
        assert text_of(events) == outcome_text(events) == "all of it "


async def test_a_cursor_of_an_older_run_restarts(fleet: Fleet, worker: TinyWorker) -> None:
    job = await fleet.submit(model=MODEL, messages=CHAT, stream=True, id="same")
    await (await worker.take_one()).say("old ")
    old = await anext(job.follow())
    assert isinstance(old, Tokens)
    await job.cancel()
    await fleet.submit(model=MODEL, messages=CHAT, stream=True, id="same")
    attempt = await worker.take_one()
    await attempt.say("new ")
    await attempt.finish()
    events = await collect(job.follow(after=old.id))
    assert [type(event) for event in events] == [Restart, Tokens, End]
    assert text_of(events) == "new "


async def test_a_job_that_does_not_stream_shows_its_result_as_one_frame(fleet: Fleet, worker: TinyWorker) -> None:
    job = await fleet.submit(model=MODEL, messages=CHAT)
    following = asyncio.create_task(collect(job.follow()))
    async with serving(worker):
        live = await following
    late = await collect(job.follow())
    assert live == late
    tokens, end = live
    assert isinstance(tokens, Tokens)
    assert tokens.text == outcome_text(live) == "".join(WORDS)
    assert tokens.chunks[0]["object"] == "chat.completion.chunk"
    assert await collect(job.follow(after=tokens.id)) == [end]
    assert [piece async for piece in job.text()] == ["".join(WORDS)]


async def test_an_expired_log_is_answered_by_the_result(fleet: Fleet, worker: TinyWorker, redis: Redis) -> None:
    job = await streaming(fleet)
    attempt = await worker.take_one()
    await attempt.say(*WORDS)
    await attempt.finish()
    await run(redis, Call(("DEL", keys.tokens(job.handle)), int))
    events = await collect(job.follow())
    assert [type(event) for event in events] == [Tokens, End]
    assert text_of(events) == "".join(WORDS)
    partly = await collect(job.follow(after=f"{attempt.number}-3"))
    assert [type(event) for event in partly] == [Truncated, End]
    assert outcome_text(partly) == "".join(WORDS)


async def test_a_trimmed_log_says_truncated(fleet: Fleet, worker: TinyWorker, redis: Redis) -> None:
    job = await streaming(fleet)
    attempt = await worker.take_one()
    await attempt.say("a ", "b ", "c ", "d ")
    await run(redis, Call(("XTRIM", keys.tokens(job.handle), "MAXLEN", 2), int))
    await attempt.finish()
    events = await collect(job.follow(after=f"{attempt.number}-1"))
    assert [type(event) for event in events] == [Truncated, Tokens, Tokens, End]


async def test_a_cancelled_job_ends_its_followers(fleet: Fleet, worker: TinyWorker, redis: Redis) -> None:
    running, queued = await streaming(fleet), await streaming(fleet)
    attempt, other = await worker.take()
    await attempt.say("a ")
    await other.give_back()
    following = [asyncio.create_task(collect(job.follow())) for job in (running, queued)]
    await confirmed(redis, running)
    await confirmed(redis, queued)
    await running.cancel()
    await queued.cancel()
    first, second = await asyncio.gather(*following)
    assert [type(event) for event in first] == [Tokens, End]
    assert [type(event) for event in second] == [End]
    end = second[0]
    assert isinstance(end, End)
    assert end.outcome.state is State.CANCELLED


async def test_an_unknown_job_can_not_be_followed(fleet: Fleet) -> None:
    with pytest.raises(errors.UnknownJob):
        await collect(fleet.follow("pool.0.t.nothing"))


async def test_what_somebody_else_publishes_on_the_channel_is_ignored(
    fleet: Fleet, worker: TinyWorker, redis: Redis
) -> None:
    job = await streaming(fleet)
    following = asyncio.create_task(collect(job.follow()))
    await confirmed(redis, job)
    for garbage in (b"", b"x", b"1-1 nonsense", b'1-1 {"seal":"unheard-of"}', b'9-1 {"other":1}', b"7-3 []"):
        await run(redis, Call(("PUBLISH", keys.tokens(job.handle), garbage), int))
    async with serving(worker):
        assert text_of(await following) == "".join(WORDS)
