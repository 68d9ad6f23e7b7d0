"""Jobs that asked to be cancelled when nobody follows them."""

from protocol import keys
from protocol.states import State
from tests.support.builders import SPEC
from tests.support.waiting import eventually
from tests.worker.stage import staged


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
