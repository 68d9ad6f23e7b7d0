"""Jobs that asked to be cancelled when nobody follows them."""

from redis.asyncio import Redis

from protocol import keys
from protocol.messages import Started
from protocol.states import Priority, State
from tests.support.builders import BODY, SPEC, a_handle
from tests.support.waiting import FakeClock, eventually
from tests.worker.stage import staged
from worker.attempt import Attempt
from worker.followers import Followers
from worker.outgoing import Outgoing


async def test_a_job_that_nobody_follows_is_cancelled_and_its_slot_freed(redis_url: str) -> None:
    async with staged(redis_url) as stage:
        handle, flight = await stage.begin(spec=SPEC.model_copy(update={"unfollowed_s": 0.05}))
        await stage.reaches(handle, State.CANCELLED)
        assert stage.driver.job(handle).error == "unfollowed"
        await eventually(lambda: flight.closed)


async def test_a_follower_keeps_it_and_its_leaving_ends_it(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        follower = stage.driver.redis.pubsub()  # type: ignore[no-untyped-call]  # redis-py 5 is untyped here
        spec = SPEC.model_copy(update={"unfollowed_s": 0.3})
        handle = stage.driver.submit(spec=spec).handle
        follower.subscribe(keys.tokens(handle))
        stage.driver.lead()
        stage.driver.assign(handle, (await stage.worker()).id)
        flight = await stage.engine.flight("a")
        flight.say("still here")
        await eventually(lambda: stage.log_text(handle) == "still here")
        assert stage.driver.job(handle).state is State.RUNNING
        follower.close()
        await stage.reaches(handle, State.CANCELLED)
        await eventually(lambda: flight.closed)


async def test_who_waited_for_it_only_so_long_is_not_missed_later(redis: Redis) -> None:
    """Its client was told that it goes on; so long counts from its submission, before it had a worker too."""
    clock = FakeClock()
    attempts = [waited_for(followed_s, clock) for followed_s in (None, 24.0, 22.0)]
    followers = Followers(redis, clock)
    for seconds, stopped in ((0.0, 0), (4.75, 0), (0.25, 2), (60.0, 2)):
        clock.advance(seconds)
        await followers.look([attempt for attempt in attempts if not attempt.stopped])
        assert [bool(attempt.stopped) for attempt in attempts] == [True] * stopped + [False] * (3 - stopped)


def waited_for(followed_s: float | None, clock: FakeClock) -> Attempt:
    """An attempt of a job that was submitted 18 s ago, and ends 5 s after nobody follows it."""
    spec = SPEC.model_copy(update={"stream": False, "unfollowed_s": 5.0, "followed_s": followed_s})
    started = Started(spec, BODY, Priority.HIGH, 0, 0, 60_000, since_ms=1_000, started_ms=19_000)
    return Attempt(Outgoing(a_handle(str(followed_s)), 1, "w1"), started, clock.monotonic(), 600.0)
