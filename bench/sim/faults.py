"""The fault injector: kills, pauses, cuts off, restarts, and decides what becomes of single calls."""

import heapq
from collections.abc import Callable, Sequence
from itertools import count
from random import Random

from bench.sim.network import Fate, Network
from bench.sim.oracle import Oracle, Violation
from bench.sim.roles import LEAD_S, LEASE_S, Fleet, place_of
from bench.sim.store import Past, Store
from bench.sim.world import Actor, World
from protocol import keys
from protocol.call import Arg
from protocol.states import State
from tests.protocol.rules import Mark
from tests.support.builders import SHARD
from worker.verdict import LONGEST_RETRY_MS

FEWEST, MOST = 6, 14
BEGIN_S, END_S = 0.8, 14.0
HOUR_S = 3_600.0
RIGHT_AFTER_S = 10.0
LOST_TAIL_S = 2.0
"""What a restart may lose: as much as an append-only file that is written each second."""
CALL_FATES: tuple[Fate, ...] = ("lost", "unheard", "broken", "doubled", "late")
STRIKES_LEFT = 2
"""So many strikes leave a job one more: chance must not set an innocent one aside."""


class Injector:
    """Breaks things between `BEGIN_S` and `END_S`, then lets the fleet come to rest.

    Attributes:
        done: which faults, in order.
        went_back: whether Redis lost its last seconds.
        calls_hurt: how many single calls were lost, doubled or late.
    """

    def __init__(self, world: World, store: Store, oracle: Oracle, fleet: Fleet, chance: Random) -> None:
        self._world, self._store, self._oracle, self._fleet, self._chance = world, store, oracle, fleet, chance
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._rate = chance.choice((0.0, 0.005, 0.02, 0.05))
        self.done: list[str] = []
        self.went_back = False
        self.calls_hurt = 0
        self._network: Network = world.network
        self._kinds: dict[Callable[[], bool], int] = {
            self.kill_worker: 4,
            self.kill_scheduler: 2,
            self.kill_client: 2,
            self.pause_worker: 3,
            self.pause_scheduler: 2,
            self.cut_off: 2,
            self.drain_worker: 1,
            self.break_connections: 2,
            self.restart_redis: 2,
            self.restart_redis_two_seconds_back: 3,
            self.stop_redis: 1,
            self.jump_clock: 1,
            self.flush_functions: 1,
            self.fill_memory: 1,
        }
        for _ in range(chance.randint(FEWEST, MOST)):
            self._at(chance.uniform(BEGIN_S, END_S), self._break_something)

    @property
    def next_s(self) -> float:
        """When it acts next; far away when it is done."""
        return self._agenda[0][0] if self._agenda else 1e9

    @property
    def over(self) -> bool:
        """Whether all is mended."""
        return not self._agenda

    def act(self) -> None:
        """Do what is due."""
        while self._agenda and self._agenda[0][0] <= self._store.elapsed_s:
            heapq.heappop(self._agenda)[2]()

    def fate(self, commands: Sequence[Sequence[Arg]]) -> Fate:
        """What becomes of one request: most are carried out."""
        if not BEGIN_S < self._store.elapsed_s < END_S or self._chance.random() >= self._rate:
            return ""
        fate = self._chance.choice(CALL_FATES)
        beats = str(commands[0][1]).endswith("_beat") if commands[0][0] == "FCALL" else False
        if fate == "late" and (beats or any("BLOCK" in command for command in commands)):
            # A beat that is seconds late is a lapse: those are injected where they set no innocent job aside.
            return ""
        self.calls_hurt += 1
        return fate

    def died(self, actor: Actor) -> None:
        """An engine took its process with it."""
        self._kill(actor)

    def _at(self, at_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (at_s, next(self._numbers), act))

    def _in(self, seconds: float, act: Callable[[], None]) -> None:
        self._at(self._store.elapsed_s + seconds, act)

    def _break_something(self) -> None:
        kinds = list(self._kinds)
        for _ in range(20):
            (kind,) = self._chance.choices(kinds, list(self._kinds.values()))
            if kind():
                self.done.append(kind.__name__)
                self._world.network.note(f"FAULT {kind.__name__}")
                return

    def _well(self, role: str) -> list[Actor]:
        now_s = self._store.elapsed_s
        return [
            actor
            for actor in self._world.actors
            if actor.role == role and actor.paused_until_s <= now_s and actor.cut_until_s <= now_s
        ]

    def _any(self, role: str) -> Actor | None:
        well = self._well(role)
        return self._chance.choice(well) if well else None

    def _a_worker(self) -> Actor | None:
        """One whose silence sets nobody aside; mostly one that has something to lose."""
        held = {actor: self._strikes_held(actor) for actor in self._well("worker")}
        spared = {actor: strikes for actor, strikes in held.items() if max(strikes, default=0) < STRIKES_LEFT}
        busy = [actor for actor, strikes in spared.items() if strikes]
        choice = busy if busy and self._chance.random() < 0.8 else list(spared)
        return self._chance.choice(choice) if choice else None

    def _strikes_held(self, actor: Actor) -> list[int]:
        """The strikes of each job that a worker holds."""
        entries = self._store.snapshot.of_kind(str(SHARD), "worker")
        lives = {life for life, entry in entries.items() if entry.value.get("label") == actor.name}
        jobs = self._oracle.rules.jobs.values()
        return [int(job.get("strikes", 0)) for job in jobs if job.get("worker") in lives and State(job["state"]).held]

    def _kill(self, actor: Actor) -> None:
        self._world.kill(actor)
        place = place_of(actor)
        self._in(self._chance.uniform(0.1, 2.0), lambda: self._start(place))

    def _start(self, place: str) -> None:
        self._fleet.start(place)

    def kill_worker(self) -> bool:
        """SIGKILL."""
        return self._killed(self._a_worker())

    def kill_scheduler(self) -> bool:
        """SIGKILL."""
        return self._killed(self._any("scheduler"))

    def kill_client(self) -> bool:
        """SIGKILL; its successor submits again what it has no result of."""
        return self._killed(self._any("client"))

    def _killed(self, actor: Actor | None) -> bool:
        if actor:
            self._kill(actor)
        return actor is not None

    def pause_worker(self) -> bool:
        """SIGSTOP, mostly until just after its lease, when its jobs run elsewhere, then SIGCONT."""
        return self._paused(self._a_worker(), LEASE_S * self._chance.choice((0.4, 1.05, 1.15, 1.3, 2.0)))

    def pause_scheduler(self) -> bool:
        """SIGSTOP, mostly past its lead: then two of them believe to lead."""
        return self._paused(self._any("scheduler"), self._chance.uniform(0.5, 4 * LEAD_S))

    def _paused(self, actor: Actor | None, seconds: float) -> bool:
        if actor:
            actor.paused_until_s = self._store.elapsed_s + seconds
        return actor is not None

    def cut_off(self) -> bool:
        """A network cut between one process and Redis."""
        actor = self._a_worker() if self._chance.random() < 0.6 else self._any("scheduler")
        if actor:
            actor.cut_until_s = self._store.elapsed_s + self._chance.uniform(0.5, 2 * LEASE_S)
            self._network.break_all(actor)
        return actor is not None

    def drain_worker(self) -> bool:
        """SIGTERM; another one is started."""
        if actor := self._any("worker"):
            self._fleet.drain(actor)
            place = place_of(actor)
            self._in(6.0, lambda: self._start_anew(place))
        return actor is not None

    def _start_anew(self, place: str) -> None:
        if all(place_of(actor) != place for actor in self._world.actors):
            self._start(place)

    def break_connections(self) -> bool:
        """CLIENT KILL of all that one process has."""
        actor = self._chance.choice(self._world.actors)
        self._network.break_all(actor)
        return True

    def restart_redis(self) -> bool:
        """Kill -9 with nothing lost."""
        self._network.break_all()
        self._store.restart()
        self._network.away_until_s = self._store.elapsed_s + self._chance.uniform(0.1, 4.0)
        return True

    def restart_redis_two_seconds_back(self) -> bool:
        """A power loss: its file ends up to two seconds before."""
        moment = self._oracle.remember()
        self._in(self._chance.uniform(0.05, LOST_TAIL_S), lambda: self._go_back(moment))
        return True

    def _go_back(self, moment: tuple[Past, Mark]) -> None:
        self._network.break_all()
        self.went_back = True
        self._network.note("FAULT Redis is back as it was before")
        self._oracle.go_back(moment)
        self._store.restart()
        self._network.away_until_s = self._store.elapsed_s + self._chance.uniform(0.1, 4.0)

    def stop_redis(self) -> bool:
        """SIGSTOP, then SIGCONT."""
        self._network.stopped_until_s = self._store.elapsed_s + self._chance.uniform(0.5, 8.0)
        return True

    def jump_clock(self) -> bool:
        """Redis's clock jumps by an hour, as at a failover; one that went back is set right long after."""
        if self._store.jumped_s:
            return False
        self._store.drop_expired()
        self._store.jumped_s = self._chance.choice((-HOUR_S, HOUR_S))
        if self._store.jumped_s < 0:
            self._at(END_S + RIGHT_AFTER_S, self._set_clock_right)
        return True

    def _set_clock_right(self) -> None:
        """Until then only what its user delayed may have been put off."""
        store = self._store
        far_ms = 1000 * store.time() + LONGEST_RETRY_MS + 1_000
        due = store.snapshot.value(keys.due(SHARD), {})
        held_up = [ref for ref, at_ms in due.items() if at_ms > far_ms and self._oracle.rules.jobs[ref].get("hold")]
        if held_up:
            raise Violation(f"the clock went back, and {held_up} wait an hour for their next attempt")
        store.jumped_s = 0.0

    def flush_functions(self) -> bool:
        """FUNCTION FLUSH."""
        self._store.flush_functions()
        return True

    def fill_memory(self) -> bool:
        """The memory limit is reached for a while."""
        self._store.full = True
        self._in(self._chance.uniform(0.5, 4.0), self._free_memory)
        return True

    def _free_memory(self) -> None:
        self._store.full = False
