"""One seed: a fleet, its clients, its faults, and what must be true at the end."""

import gc
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

import protocol.clock
import protocol.store
import scheduler.term
import worker.backoff
import worker.service
import worker.session
from bench.sim import heartbeat
from bench.sim.customers import Ledger, make_wishes
from bench.sim.faults import Injector
from bench.sim.network import Fate, Network
from bench.sim.oracle import Oracle, Violation
from bench.sim.roles import LEASE_S, Fleet
from bench.sim.store import EPOCH_S, Store
from bench.sim.world import World
from protocol import keys
from protocol.call import Arg
from protocol.states import State
from tests.support.builders import SHARD
from tests.support.store_clock import FakeStoreClock

LONGEST_S = 120.0
"""By then every job must have ended."""
A_DAY_S = 86_400.0
DEFECTS = frozenset({"round_crashed", "round_failed", "engine_defect", "event_loop_stuck"})
"""Lines of the log that no fault excuses."""


@dataclass(slots=True)
class Report:
    """What a seed brought.

    Attributes:
        broken: the rule that was broken; empty when none was.
        trace: one line for each command, fault and reply.
    """

    seed: int
    broken: str = ""
    jobs: int = 0
    workers: int = 0
    calls: int = 0
    faults: list[str] = field(default_factory=list)
    calls_hurt: int = 0
    virtual_s: float = 0.0
    restarts: int = 0
    lost: int = 0
    strikes: int = 0
    pieces: int = 0
    trace: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """Equal for equal runs."""
        return sha256("\n".join(self.trace).encode()).hexdigest()


class Run:
    """Everything of one seed, wired up."""

    def __init__(self, seed: int) -> None:
        chances = Random(seed)
        self.wishes = make_wishes(_child(chances))
        self.store = Store()
        self.oracle = Oracle(self.store, {wish.ref for wish in self.wishes if wish.poison})
        self.world = World(self.store)
        self.world.network = self.network = Network(self.store, _child(chances), self.oracle, self)
        self.ledger = Ledger()
        self.fleet = Fleet(self.world, _child(chances), self.wishes, self.ledger)
        self.injector = Injector(self.world, self.store, self.oracle, self.fleet, _child(chances))
        self.fleet.on_death(self.injector.died)

    def fate(self, commands: Sequence[Sequence[Arg]]) -> Fate:
        """As the injector says."""
        return self.injector.fate(commands)

    def heed(self, logger: object, method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        """Nothing is logged; what tells of a defect of the product breaks a rule."""
        del logger, method
        if event["event"] in DEFECTS:
            self.world.crashes.append(f"a process logged: {event}")
        raise structlog.DropEvent

    def play(self) -> None:
        """From the first process to an empty Redis.

        Raises:
            Violation: a rule was broken.
        """
        for place in self.fleet.places:
            self.fleet.start(place)
        self._until(LONGEST_S, lambda: self.injector.over and len(self.ledger.ended) == len(self.wishes))
        self._until(LONGEST_S, lambda: self.injector.over and not self._alive())
        for actor in self.world.actors:
            if actor.role == "worker":
                self.fleet.drain(actor)
        self._until(LONGEST_S, lambda: not self._left("worker", "client"))
        self._until(3 * LEASE_S, lambda: not self.store.snapshot.value(keys.workers(SHARD)))
        for actor in tuple(self.world.actors):
            self.world.kill(actor)
        self._check_empty()

    def _until(self, longest_s: float, done: Callable[[], object]) -> None:
        store, injector, world = self.store, self.injector, self.world
        give_up_s = store.elapsed_s + longest_s
        while not done():
            if store.elapsed_s >= give_up_s:
                raise Violation(f"after {longest_s:g} s it is not over: {self._unfinished()}")
            world.step(min(give_up_s, injector.next_s))
            if world.crashes:
                raise Violation("\n".join(world.crashes))
            if injector.next_s <= store.elapsed_s:
                injector.act()

    def _alive(self) -> list[str]:
        jobs = self.oracle.rules.jobs
        return [f"{ref} is {job['state']}" for ref, job in jobs.items() if not State(job["state"]).terminal]

    def _left(self, *roles: str) -> list[str]:
        return [actor.name for actor in self.world.actors if actor.role in roles]

    def _unfinished(self) -> str:
        waiting = [wish.ref for wish in self.wishes if wish.ref not in self.ledger.ended]
        workers = self.store.snapshot.value(keys.workers(SHARD))
        return (
            f"clients wait for {waiting}; {self._alive()}; running {self._left('worker', 'client')}; leased {workers}"
        )

    def _check_empty(self) -> None:
        """All has ended; a retention later only the permanent keys are left."""
        shard, snapshot = str(SHARD), self.store.snapshot
        dead = {fields["j"] for _, fields in snapshot.value(keys.dead(SHARD), [])}
        poison = {wish.ref for wish in self.wishes if wish.poison}
        # What a restart took back may be gone for good once its client had seen it.
        if dead - poison or (dead != poison and not self.injector.went_back):
            raise Violation(f"set aside were {sorted(dead)}, planted {sorted(poison)}")
        self.store.jumped_s += 10 * A_DAY_S
        self.store.look()
        permanent = {keys.clock(SHARD), keys.events(SHARD), keys.dead(SHARD), keys.fleet(SHARD), keys.MODELS}
        left = self.store.snapshot.entries.keys() - permanent
        if left:
            raise Violation(f"of {shard} these keys are left over: {sorted(left)}")


def simulate(seed: int, *, traced: bool = False) -> Report:
    """Play one seed. Not for two threads at once: it turns the process's own time and chance for so long."""
    report = Report(seed)
    with _garbage_left(), _under(seed) as run:
        try:
            run.play()
        except Violation as broken:
            report.broken = str(broken)
        finally:
            _fill(report, run, traced=traced or bool(report.broken))
            run.world.close()
    return report


def _fill(report: Report, run: Run, *, traced: bool) -> None:
    report.jobs, report.workers = len(run.oracle.accepted), run.fleet.workers
    report.calls, report.faults, report.calls_hurt = run.network.calls, run.injector.done, run.injector.calls_hurt
    report.virtual_s, report.strikes = run.store.elapsed_s, run.oracle.strikes
    report.restarts, report.lost, report.pieces = run.ledger.restarts, run.ledger.lost, run.ledger.pieces
    if traced:
        report.trace = [_line(*each) for each in run.network.trace]


def _line(at_s: float, who: str, command: Sequence[Arg], reply: object) -> str:
    if not command:
        return f"{at_s:9.4f} {who}"
    words = [part.decode(errors="replace") if isinstance(part, bytes) else str(part) for part in command]
    if words[0] == "FCALL":
        words = [words[1], *words[3 + int(words[2]) :]]
    return f"{at_s:9.4f} {who} {' '.join(word[:300] for word in words)} → {reply!r:.300}"


def _child(chances: Random) -> Random:
    return Random(chances.getrandbits(64))


class _StoreClock(FakeStoreClock):
    """fakeredis's time."""

    run: Run

    def time(self) -> float:
        return self.run.store.time() if hasattr(self, "run") else EPOCH_S


@cache
def _pass_over_imports() -> None:
    """Once: what a run leaves would be frozen with them."""
    gc.collect()
    gc.freeze()


@contextmanager
def _garbage_left() -> Iterator[None]:
    """Garbage is collected at the end, once, and only the runs': a sixth of the time goes into looking for it."""
    _pass_over_imports()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


@contextmanager
def _under(seed: int) -> Iterator[Run]:
    """A run whose time and chance the whole process follows."""
    chance, clock = Random(seed + 0.5), _StoreClock()
    with pytest.MonkeyPatch.context() as patch:
        clock.install(patch)
        run = clock.run = Run(seed)
        log = structlog.get_config()
        structlog.configure(processors=[run.heed], wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
        patch.setattr(protocol.clock, "time", SimpleNamespace(monotonic=lambda: run.world.now_s))
        patch.setattr(protocol.store, "connect", heartbeat.connect)
        patch.setattr(secrets, "token_hex", lambda size: f"{chance.getrandbits(8 * size):0{2 * size}x}")
        patch.setattr(secrets, "randbelow", chance.randrange)
        patch.setattr(scheduler.term, "random", SimpleNamespace(Random=lambda: Random(chance.random())))
        patch.setattr(worker.backoff, "_CHANCE", chance)
        patch.setattr(worker.session, "Heartbeat", heartbeat.SimHeartbeat)
        patch.setattr(worker.service, "open_device", lambda _: None)
        patch.setattr(worker.service, "memory_limit_bytes", lambda: 1)
        yield run
        heartbeat.forget_all()
        structlog.configure(**log)
