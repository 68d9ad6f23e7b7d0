"""The walk's moves as a hypothesis state machine on real servers: it looks for the shortest way to break a rule."""

from random import Random

import fakeredis
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from redis import Redis

from protocol import library
from tests.conftest import Backend
from tests.protocol.walk import Broken, Walk
from tests.support.fuzz import examples
from tests.support.store_clock import AgingClock, FakeStoreClock, StoreClock

# The same few in each run, or as many new ones as one asks for.
BOUNDED = settings(examples(10), stateful_step_count=40, suppress_health_check=list(HealthCheck))
FINDING = settings(BOUNDED, phases=[Phase.generate])
"""Finding is enough: looking for a shorter way takes a minute."""


class Moves(RuleBasedStateMachine):
    """One run on an empty Redis; the rules are checked after each move."""

    _redis: Redis
    _clock: StoreClock
    _restarts: bool

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        """The machine chooses the moves, the seed whom and what they are about."""
        self._redis.flushall()
        self._walk = Walk(self._redis, self._clock, Random(seed), f"a state machine with seed {seed}")

    @rule()
    def submit(self) -> None:
        self._walk.take(self._walk.submit)

    @rule()
    def submit_the_last_again(self) -> None:
        self._walk.take(self._walk.submit_the_last_again)

    @rule()
    def cancel(self) -> None:
        self._walk.take(self._walk.cancel)

    @rule()
    def forget(self) -> None:
        self._walk.take(self._walk.forget)

    @rule(many=st.integers(1, 6))
    def dispatch(self, many: int) -> None:
        """What is rare by single moves: a job that runs."""
        for _ in range(many):
            for step in (self._walk.submit, self._walk.tick, self._walk.assign, self._walk.read_inbox):
                self._walk.take(step)

    @rule()
    def tick(self) -> None:
        self._walk.take(self._walk.tick)

    @rule()
    def assign(self) -> None:
        self._walk.take(self._walk.assign)

    @rule()
    def beat(self) -> None:
        self._walk.take(self._walk.beat)

    @rule()
    def read_inbox(self) -> None:
        self._walk.take(self._walk.read_inbox)

    @rule()
    def start_again(self) -> None:
        self._walk.take(self._walk.start_again)

    @rule()
    def emit(self) -> None:
        self._walk.take(self._walk.emit)

    @rule()
    def finish(self) -> None:
        self._walk.take(self._walk.finish)

    @rule()
    def requeue(self) -> None:
        self._walk.take(self._walk.requeue)

    @rule()
    def leave(self) -> None:
        self._walk.take(self._walk.leave)

    @rule()
    def die(self) -> None:
        self._walk.take(self._walk.die)

    @rule()
    def time_passes(self) -> None:
        self._walk.take(self._walk.time_passes)

    @rule()
    def clock_jumps(self) -> None:
        self._walk.take(self._walk.clock_jumps)

    @rule()
    def functions_are_flushed(self) -> None:
        self._walk.take(self._walk.functions_are_flushed)

    @precondition(lambda self: self._restarts)
    @rule()
    def server_restarts(self) -> None:
        self._walk.take(self._walk.server_restarts)


def moves_on(redis: Redis, clock: StoreClock, *, restarts: bool) -> type[Moves]:
    return type("MovesHere", (Moves,), {"_redis": redis, "_clock": clock, "_restarts": restarts})


def test_no_way_of_a_state_machine_breaks_a_rule(real_backend: Backend) -> None:
    redis = real_backend.sync
    run_state_machine_as_test(moves_on(redis, AgingClock(redis), restarts=True), settings=BOUNDED)


def test_a_state_machine_finds_a_careless_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot that is never freed, as the model checker's own test has it."""
    right = "if not try('HINCRBY', worker, 'held', -1) then return end"
    assert library.source().count(right) == 1
    careless = library.source().replace(right, "")
    monkeypatch.setattr(library, "source", lambda: careless)
    clock = FakeStoreClock(frozen=True)
    clock.install(monkeypatch)
    with fakeredis.FakeRedis(server=fakeredis.FakeServer()) as redis:
        redis.function_load(careless, replace=True)
        with pytest.raises(Broken):
            run_state_machine_as_test(moves_on(redis, clock, restarts=False), settings=FINDING)
