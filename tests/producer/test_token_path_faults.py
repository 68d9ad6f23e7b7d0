"""Following a job while connections are killed, go silent or restart with Redis."""

import asyncio

import pytest
from redis.asyncio import Redis

from producer import hub
from producer.events import End, Tokens, Truncated
from producer.fleet import Fleet
from producer.jobs import Job
from producer.reader import Reader
from protocol import keys
from protocol.call import Call, run
from protocol.functions import emit
from protocol.handle import Handle
from protocol.settings import Settings
from tests.producer.reading import WORDS, collect, confirmed, outcome_text, streaming, text_of
from tests.producer.tiny import Attempt, TinyWorker, serving, text_chunk
from tests.support.servers import Server
from tests.support.waiting import eventually


async def kill_subscribers(redis: Redis) -> int:
    return await run(redis, Call(("CLIENT", "KILL", "TYPE", "pubsub"), int))


async def say_slowly(attempt: Attempt, redis: Redis, job: Job) -> int:
    """Kills all pub/sub connections between some words; how many were killed."""
    killed = 0
    for index, word in enumerate(WORDS):
        if index % 8 == 4:
            await confirmed(redis, job)
            killed += await kill_subscribers(redis)
        await attempt.say(word)
    await attempt.finish()
    return killed


async def test_followers_that_are_cut_off_in_the_middle_lose_nothing_and_see_nothing_twice(redis_url: str) -> None:
    settings = Settings(redis_url=redis_url, redis_patience_s=5)
    async with Fleet(tenant="t", settings=settings) as fleet:
        worker = TinyWorker(fleet.redis)
        await worker.join()
        job = await streaming(fleet)
        following = [asyncio.create_task(collect(job.follow())) for _ in range(3)]
        waiting = asyncio.create_task(job.result(timeout=10))
        attempt = await worker.take_one()
        assert await say_slowly(attempt, fleet.redis, job) >= 5
        seen = await asyncio.gather(*following)
        outcome = await waiting
    for events in seen:
        assert [event.id for event in events if isinstance(event, Tokens)] == [f"1-{n}" for n in range(1, 41)]
        assert text_of(events) == outcome.text == "".join(WORDS)


async def test_a_channel_that_goes_silent_is_read_from_the_log(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the network swallows the pub/sub connection without closing it."""
    monkeypatch.setattr(hub, "SILENCE_S", 0.2)
    settings = Settings(redis_url=redis_url, redis_patience_s=5)
    async with Fleet(tenant="t", settings=settings) as fleet:
        worker = TinyWorker(fleet.redis)
        await worker.join()
        job = await streaming(fleet)
        following = asyncio.create_task(collect(job.follow()))
        await confirmed(fleet.redis, job)
        monkeypatch.setattr(fleet._hub, "_pass_on", lambda _: None)
        async with serving(worker):
            assert text_of(await following) == "".join(WORDS)


async def test_a_quiet_connection_is_asked_whether_it_lives(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "SILENCE_S", 0.05)
    async with Fleet(valkey_url, tenant="t", settings=Settings(redis_patience_s=5)) as fleet:
        worker = TinyWorker(fleet.redis)
        await worker.join()
        job = await streaming(fleet)
        following = asyncio.create_task(collect(job.follow()))
        await confirmed(fleet.redis, job)

        async def subscriber(last_command: str) -> str:
            listed = await run(fleet.redis, Call(("CLIENT", "LIST", "TYPE", "pubsub"), bytes.decode))
            return listed.split()[0] if f"cmd={last_command}" in listed else ""

        before = await subscriber("subscribe")
        assert await eventually(lambda: subscriber("ping")) == before
        async with serving(worker):
            assert text_of(await following) == "".join(WORDS)
        assert await subscriber("unsubscribe") in (before, "")


async def test_a_connection_that_answers_no_ping_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "SILENCE_S", 0.05)
    async with Fleet(server.url, tenant="t", settings=Settings(redis_patience_s=20)) as fleet:
        worker = TinyWorker(fleet.redis)
        await worker.join()
        job = await streaming(fleet)
        following = asyncio.create_task(collect(job.follow()))
        await confirmed(fleet.redis, job)
        server.pause()
        await eventually(lambda: not fleet._hub._confirmed)
        server.resume()
        async with serving(worker):
            assert text_of(await following) == "".join(WORDS)


async def test_a_reader_lives_through_a_restart_of_redis(server: Server) -> None:
    settings = Settings(redis_url=server.url, redis_patience_s=20)
    async with Fleet(tenant="t", settings=settings) as fleet:
        worker = TinyWorker(fleet.redis)
        await worker.join()
        job = await streaming(fleet)
        following = asyncio.create_task(collect(job.follow()))
        waiting = asyncio.create_task(job.result(timeout=20))
        attempt = await worker.take_one()
        await attempt.say(*WORDS[:20])
        await run(fleet.redis, Call(("CONFIG", "SET", "appendfsync", "always"), bool))
        await attempt.say("last before ")
        server.kill()
        submitting = asyncio.create_task(streaming(fleet))
        server.start()
        await attempt.say(*WORDS[20:])
        await attempt.finish()
        events = await following
        assert text_of(events) == outcome_text(events) == (await waiting).text
        assert (await submitting).created


async def published(redis: Redis, job: Job, frame: str) -> None:
    await run(redis, Call(("PUBLISH", keys.tokens(job.handle), frame), int))


async def test_a_follower_that_heard_an_end_which_redis_has_lost_goes_on(
    fleet: Fleet, worker: TinyWorker, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restart from an append-only file that was cut two seconds back: the job runs on."""
    monkeypatch.setattr(hub, "SILENCE_S", 0.05)
    job = await streaming(fleet)
    following = asyncio.create_task(collect(job.follow()))
    await confirmed(redis, job)
    attempt = await worker.take_one()
    await attempt.say(*WORDS[:3])
    await published(redis, job, f'{attempt.number}-4 {{"seal":"completed"}}')
    await attempt.say(*WORDS[3:])
    await attempt.finish()
    seen = await following
    assert text_of(seen) == outcome_text(seen) == "".join(WORDS)


async def test_a_follower_that_heard_what_redis_has_lost_has_the_text_that_went_on_without_it(
    fleet: Fleet, worker: TinyWorker, redis: Redis
) -> None:
    """As of a primary that hung, when another leads already: the next attempt goes on from what that one has."""
    job = await streaming(fleet)
    following = asyncio.create_task(collect(job.follow()))
    await confirmed(redis, job)
    first = await worker.take_one()
    await first.say(*WORDS[:3])
    await published(redis, job, f'{first.number}-4 [{{"choices":[{{"delta":{{"content":"lost"}}}}]}}]')
    await first.give_back()
    second = await worker.take_one()
    rest = [text_chunk(word) for word in WORDS[3:]]
    ours = (job.handle, second.number, worker.name)
    assert await run(redis, emit(*ours, 4, rest, after=(first.number, 3))) == 4
    second.frames, second.said = 4, list(WORDS)
    await second.finish()
    seen = await following
    assert "lost" in "".join(event.text for event in seen if isinstance(event, Tokens))
    assert not any(isinstance(event, Truncated) for event in seen)
    assert text_of(seen) == outcome_text(seen) == "".join(WORDS)


async def test_a_follower_that_heard_an_end_is_told_what_the_job_said_when_it_ran_again(
    fleet: Fleet, worker: TinyWorker, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await streaming(fleet)
    following = asyncio.create_task(collect(job.follow()))
    await confirmed(redis, job)
    ended = Reader._ended

    async def after_another_run(reader: Reader, handle: Handle) -> object:
        attempt = await worker.take_one()
        await attempt.say(*WORDS)
        await attempt.finish()
        return await ended(reader, handle)

    monkeypatch.setattr(Reader, "_ended", after_another_run)
    await published(redis, job, '0-1 [{"object":"chat.completion.chunk","choices":[{"delta":{"content":"lost"}}]}]')
    await published(redis, job, '0-2 {"seal":"completed"}')
    seen = await following
    assert isinstance(seen[0], Tokens)
    assert seen[0].text == "lost"
    assert text_of(seen) == outcome_text(seen) == "".join(WORDS)
    assert isinstance(seen[-1], End)
    assert seen[-1].id != "0-2"
