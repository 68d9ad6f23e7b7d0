"""Random walks over the function library: whatever the order of events, every rule holds after every step."""

from random import Random

import fakeredis
import pytest

from protocol import library
from protocol.states import TRANSITIONS, State
from tests.conftest import Backend
from tests.protocol.walk import Broken, Walk
from tests.support.store_clock import AgingClock, FakeStoreClock

SEEDS, STEPS = 40, 150
# The table allows it, and nothing does it: a job that waits for its time is not looked at.
NOT_WALKED = {(State.DELAYED, State.FAILED)}

TAKE = "take_from(bucket, 'wide', need, '0', '1', now)"
REFUSED, REPEATED = "if refusal then return refusal end", "if answer then return answer[1]"
CARELESS = {
    "attempts are not compared": ("job.attempt == attempt and job.worker == worker and leased", "job.worker == worker"),
    "workers are not compared": ("job.worker == worker and leased(", "leased("),
    "nonces are forgotten": ("if string.find(' ' .. nonces .. ' ', ' ' .. nonce .. ' ', 1, true)", "if false"),
    "a slot is never freed": ("worker, 'held', -1)", "worker, 'held', 0)"),
    "a deadline outlives its job": ("try('ZREM', deadlines_key(P), job.ref)", ""),
    "the leader's token is not compared": (
        "~= ARGV[1] then return { 'not_leader' }",
        "== 0 then return { 'not_leader' }",
    ),
    "what was not used is kept": ("bucket.tokens + used - number(taken)", "bucket.tokens"),
    "what a key spent never fades": (" - math.max(0, now - since) * rate / 60000", ""),
    "a key's jobs never end": ("math.max(0, bucket.jobs - 1)", "bucket.jobs"),
    "a key's bodies never end": ("math.max(0, bucket.bytes - number(bytes))", "bucket.bytes"),
    "a refused job is taken": (REFUSED, f"if refusal and bucket then {TAKE} end {REFUSED}"),
    "a repeat takes again": (REPEATED, f"if answer and bucket then {TAKE} end {REPEATED}"),
    "a failure that is to stay runs anew": ("failure_stays and same and", "false and"),
    "an old result is kept": ("redis.call('DEL', job.key, result_key(job.P, job.ref), ", "redis.call('DEL', job.key, "),
}


def walk_on_fake(monkeypatch: pytest.MonkeyPatch, seed: int, source: str) -> Walk:
    clock = FakeStoreClock(frozen=True)
    clock.install(monkeypatch)
    with fakeredis.FakeRedis(server=fakeredis.FakeServer()) as redis:
        redis.function_load(source, replace=True)
        walk = Walk(redis, clock, Random(seed), f"seed {seed}")
        walk.run(STEPS)
        return walk


def walk_all(monkeypatch: pytest.MonkeyPatch, source: str) -> set[tuple[State, State]]:
    walks = [walk_on_fake(monkeypatch, seed, source) for seed in range(SEEDS)]
    return {change for walk in walks for change in walk.rules.changes}


def test_every_rule_holds_on_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    walked = walk_all(monkeypatch, library.source())
    allowed = {(before, after) for before, follow in TRANSITIONS.items() for after in follow}
    assert allowed - walked == NOT_WALKED


@pytest.mark.parametrize("seed", [100, 101])
def test_every_rule_holds_on_real_servers(real_backend: Backend, seed: int) -> None:
    redis = real_backend.sync
    Walk(redis, AgingClock(redis), Random(seed), f"seed {seed}").run(STEPS)


@pytest.mark.parametrize("what", CARELESS)
def test_a_careless_build_is_found(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    right, wrong = CARELESS[what]
    assert library.source().count(right) == 1
    source = library.source().replace(right, wrong)
    with pytest.raises(Broken, match="seed"):
        walk_all(monkeypatch, source)
