"""Whatever is asked when: a key gets no more than its rate and one burst, and nothing less when it comes as told."""

from collections.abc import Iterator

import fakeredis
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from redis import Redis

from protocol import library
from protocol.call import run_sync
from protocol.errors import RateLimited
from protocol.functions import cancel, submit
from protocol.limits import Bucket, Limits
from tests.support.builders import SPEC, a_handle, a_submission
from tests.support.store_clock import FakeStoreClock

MINUTE_MS = 60_000
# Finding is enough: looking for a shorter way takes minutes.
BOUNDED = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 120)),
        st.tuples(st.just("wait"), st.sampled_from([1, 37, 500, 1_000, 20_000])),
        # Jobs that never started: all that they took comes back.
        st.tuples(st.just("cancel"), st.integers(0, 50)),
    ),
    min_size=20,
    max_size=60,
)


class Key:
    """One API key on a Redis whose clock the test turns."""

    def __init__(self, redis: Redis, clock: FakeStoreClock, limits: Limits) -> None:
        redis.flushall()
        self._redis, self._clock, self._bucket = redis, clock, Bucket("k", limits)
        self._asked = 0
        self.now_ms = 0
        self.got: dict[str, int] = {}
        """Own id → tokens that it holds or has used."""

    def ask(self, tokens: int) -> float | None:
        """Submit a job; seconds to wait when it is refused."""
        self._asked += 1
        spec = SPEC.model_copy(update={"prompt_tokens": tokens, "output_tokens": 0})
        own_id = f"{self._asked}"
        try:
            run_sync(self._redis, submit(a_submission(own_id, spec=spec, bucket=self._bucket)))
        except RateLimited as refusal:
            return refusal.retry_after_s
        self.got[own_id] = tokens
        return None

    def cancel(self, number: int) -> None:
        alive = [own_id for own_id, tokens in self.got.items() if tokens]
        if alive:
            own_id = alive[number % len(alive)]
            run_sync(self._redis, cancel(a_handle(own_id)))
            self.got[own_id] = 0

    def take_all(self) -> None:
        """Submit until not one token is left."""
        for tokens in (120, 40, 10, 1):
            while self.ask(tokens) is None:
                pass

    def wait(self, ms: int) -> None:
        self._clock.advance(ms)
        self.now_ms += ms


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Redis, FakeStoreClock]]:
    clock = FakeStoreClock(frozen=True)
    clock.install(monkeypatch)
    with fakeredis.FakeRedis(server=fakeredis.FakeServer()) as redis:
        redis.function_load(library.source(), replace=True)
        yield redis, clock


@BOUNDED
@given(moves=MOVES, requests=st.sampled_from([3, 30, 1_000]), tokens=st.integers(120, 600))
def test_a_key_never_gets_more_than_its_rate_and_one_burst(
    fake: tuple[Redis, FakeStoreClock], moves: list[tuple[str, int]], requests: int, tokens: int
) -> None:
    key = Key(*fake, Limits(requests_a_minute=requests, tokens_a_minute=tokens))
    key.take_all()
    for move, value in moves:
        {"submit": key.ask, "wait": key.wait, "cancel": key.cancel}[move](value)
    key.take_all()
    minutes = 1 + key.now_ms / MINUTE_MS
    assert len(key.got) <= requests * minutes + 1e-6
    assert sum(key.got.values()) <= tokens * minutes + 1e-6


@BOUNDED
@given(sizes=st.lists(st.integers(1, 120), min_size=8, max_size=25), requests=st.integers(1, 30))
def test_a_key_that_comes_when_it_was_told_gets_all_of_its_rate(
    fake: tuple[Redis, FakeStoreClock], sizes: list[int], requests: int
) -> None:
    """Refused once, a job is taken at the moment that it was told; then no time has been wasted."""
    tokens = 150
    key = Key(*fake, Limits(requests_a_minute=requests, tokens_a_minute=tokens))
    for size in sizes:
        wait_s = key.ask(size)
        if wait_s is not None:
            key.wait(round(wait_s * 1000))
            assert key.ask(size) is None
    needed_ms = max((len(sizes) - requests) / requests, (sum(sizes) - tokens) / tokens) * MINUTE_MS
    assert needed_ms <= key.now_ms <= max(0, needed_ms) + 2 * len(sizes)
