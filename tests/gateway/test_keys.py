"""API keys in Redis: what each may, how soon a revocation is heeded, and that no key is ever written down."""

import logging

import pytest
from redis.asyncio import Redis

from producer.fleet import Fleet
from producer.gateway.auth import FRESH_S, MOST_KEPT, Everybody, Grant, StoredKeys, UntilFirstKey
from producer.keys import create_key, list_keys, revoke_key
from protocol import api_keys, keys
from protocol.call import run
from protocol.errors import InvalidId, InvalidRequest, RateLimited, UnknownKey, Unreadable
from protocol.functions import register
from protocol.limits import Bucket, Limits
from protocol.messages import ModelRecord
from protocol.settings import Settings
from protocol.states import Priority

SETTINGS = Settings(redis_patience_s=5)


class Turned:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def fleet(redis: Redis) -> Fleet:
    return Fleet(redis=redis, settings=SETTINGS)


async def test_a_key_grants_what_it_was_made_with(fleet: Fleet) -> None:
    limits = Limits(requests_a_minute=60, tokens_a_minute=1000, jobs=3, bytes=10_000)
    secret, key = await create_key(
        fleet, tenant="acme", priorities=[Priority.LOW], models=["m"], limits=limits, note="web shop"
    )
    grant = await StoredKeys(fleet.redis, 5).find(secret)
    assert grant == Grant("acme", key.id, (Priority.LOW,), ("m",), limits)
    assert grant.bucket == Bucket(key.id, limits)
    assert grant.may_use("m")
    assert not grant.may_use("other")
    assert key.record.created_ms > 0


async def test_by_default_a_key_may_all(fleet: Fleet) -> None:
    secret, _ = await create_key(fleet)
    grant = await StoredKeys(fleet.redis, 5).find(secret)
    assert grant is not None
    assert grant.tenant == "default"
    assert grant.priorities == tuple(Priority)
    assert grant.may_use("whatever")
    assert grant.limits == Limits()


@pytest.mark.parametrize("key", ["", "tf-", "tf-" + "x" * 43, "\udcff", "a" * 100_000])
async def test_what_is_no_key_grants_nothing(fleet: Fleet, key: str) -> None:
    await create_key(fleet)
    assert await StoredKeys(fleet.redis, 5).find(key) is None


async def test_no_two_keys_are_the_same(fleet: Fleet) -> None:
    made = [await create_key(fleet) for _ in range(20)]
    assert len({secret for secret, _ in made}) == len({key.id for _, key in made}) == 20
    assert all(len(secret) == len("tf-") + 43 for secret, _ in made)


async def test_redis_and_logs_never_hold_the_key(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret, key = await create_key(fleet, note="mine")
    ring = StoredKeys(fleet.redis, 5)
    assert await ring.find(secret)
    stored = await fleet.redis.hgetall(keys.API_KEYS)  # type: ignore[misc]  # redis-py 5
    body = secret.removeprefix("tf-")
    assert body not in str(stored)
    assert body not in caplog.text
    assert body not in repr(vars(ring))
    assert body not in repr(key)
    assert [stored_name.decode() for stored_name in stored] == [api_keys.digest_of(secret)]


async def test_a_revocation_is_heeded_within_seconds(fleet: Fleet) -> None:
    clock = Turned()
    ring = StoredKeys(fleet.redis, 5, clock)
    secret, key = await create_key(fleet)
    other, _ = await create_key(fleet)
    assert await ring.find(secret)
    revoked = await revoke_key(fleet, key.id)
    assert revoked.record.revoked_ms > 0
    clock.now = FRESH_S - 0.01
    assert await ring.find(secret)
    clock.now = FRESH_S
    assert await ring.find(secret) is None
    assert await StoredKeys(fleet.redis, 5).find(secret) is None
    assert await ring.find(other)
    assert FRESH_S <= 5


async def test_a_key_that_was_revoked_stays_so(fleet: Fleet) -> None:
    _, key = await create_key(fleet)
    first = await revoke_key(fleet, key.id)
    assert await revoke_key(fleet, key.id) == first
    assert [found.record.revoked_ms for found in await list_keys(fleet)] == [first.record.revoked_ms]
    with pytest.raises(UnknownKey):
        await revoke_key(fleet, "0" * 16)


async def test_a_key_is_good_as_soon_as_it_is_there(fleet: Fleet) -> None:
    """What was not found is not remembered."""
    ring = StoredKeys(fleet.redis, 5, Turned())
    secret, key = await create_key(fleet)
    await fleet.redis.delete(keys.API_KEYS)
    assert await ring.find(secret) is None
    await run(fleet.redis, api_keys.save(key))
    assert await ring.find(secret)


async def test_what_is_remembered_is_bounded(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producer.gateway.auth.MOST_KEPT", 3)
    ring = StoredKeys(fleet.redis, 5)
    for _ in range(6):
        secret, _ = await create_key(fleet)
        assert await ring.find(secret)
    assert len(ring._kept) == 3
    assert MOST_KEPT <= 10_000


async def test_a_gateway_can_tell_whether_there_ever_were_keys(fleet: Fleet) -> None:
    ring = StoredKeys(fleet.redis, 5)
    assert not await ring.any_created()
    _, key = await create_key(fleet)
    await revoke_key(fleet, key.id)
    assert await ring.any_created()


async def test_everybody_counts_for_no_key() -> None:
    grant = await Everybody().find("")
    assert grant == Grant("default", "", operator=True)
    assert grant.bucket is None


async def test_the_first_key_closes_a_gateway_that_was_open_and_a_revocation_opens_none(fleet: Fleet) -> None:
    clock = Turned()
    ring = UntilFirstKey(StoredKeys(fleet.redis, 5, clock), clock)
    assert await ring.find("") == Grant("default", "", operator=True)
    secret, key = await create_key(fleet, tenant="acme")
    clock.now += FRESH_S
    assert await ring.find("") is None
    assert await ring.find("tf-guessed") is None
    assert (await ring.find(secret)) == Grant("acme", key.id)
    await revoke_key(fleet, key.id)
    clock.now += FRESH_S
    assert await ring.find(secret) is None
    assert await ring.find("") is None


async def test_a_client_of_one_tenant_sees_and_makes_its_own_keys_only(fleet: Fleet) -> None:
    acme = Fleet(redis=fleet.redis, settings=SETTINGS.model_copy(update={"tenant": "acme"}))
    _, foreign = await create_key(fleet, tenant="evil")
    _, own = await create_key(acme)
    assert own.record.tenant == "acme"
    assert await list_keys(acme) == [own]
    with pytest.raises(UnknownKey):
        await revoke_key(acme, foreign.id)
    with pytest.raises(InvalidRequest):
        await create_key(acme, tenant="evil")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"tenant": "a:b"}, InvalidId),
        ({"models": ["x\n"]}, InvalidId),
        ({"note": "x" * 257}, InvalidRequest),
        ({"note": "\x1b[2J"}, InvalidRequest),
    ],
)
async def test_what_is_no_name_makes_no_key(fleet: Fleet, given: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        await create_key(fleet, **given)  # type: ignore[arg-type]  # the wrong ones are the point
    assert await list_keys(fleet) == []


async def test_a_record_written_by_hand_is_no_key_and_hides_no_other(fleet: Fleet) -> None:
    secret, key = await create_key(fleet)
    await fleet.redis.hset(keys.API_KEYS, api_keys.digest_of("x"), "{nonsense")  # type: ignore[misc]  # redis-py 5
    assert [found.id for found in await list_keys(fleet)] == [key.id]
    with pytest.raises(Unreadable):
        await StoredKeys(fleet.redis, 5).find("x")
    assert await StoredKeys(fleet.redis, 5).find(secret)


async def test_a_submit_for_a_key_tells_what_is_left_and_is_refused_past_it(fleet: Fleet) -> None:
    await run(fleet.redis, register("m", ModelRecord(pool="pool")))
    secret, _ = await create_key(fleet, limits=Limits(requests_a_minute=1, tokens_a_minute=1000))
    grant = await StoredKeys(fleet.redis, 5).find(secret)
    assert grant is not None
    job = await fleet.submit(model="m", prompt="hi", bucket=grant.bucket, id="one")
    assert job.allowance is not None
    assert job.allowance.requests is not None
    assert (job.allowance.requests.limit, job.allowance.requests.remaining) == (1, 0)
    with pytest.raises(RateLimited) as refusal:
        await fleet.submit(model="m", prompt="hi", bucket=grant.bucket)
    assert refusal.value.kind == "requests"
    assert 0 < refusal.value.retry_after_s <= 60.01
    # The same request again, as of a client that lost the answer, takes nothing.
    assert not (await fleet.submit(model="m", prompt="hi", bucket=grant.bucket, id="one")).created
    with pytest.raises(InvalidId):
        await fleet.submit(model="m", prompt="hi", bucket=Bucket("a:b", Limits()))
    await fleet.cancel(job)
