"""The processes of the simulated fleet, each with the product's own code, and who starts them again."""

from collections.abc import Callable, Sequence
from random import Random

from bench.sim import heartbeat
from bench.sim.customers import MODEL, Customer, Ledger, Wish
from bench.sim.engine import SimEngine
from bench.sim.world import Actor, World
from protocol.settings import Settings
from scheduler.service import run_scheduler
from tests.support.builders import SHARD
from worker.options import WorkerOptions
from worker.service import run_worker
from worker.stop import StopSignals

SCHEDULERS, WORKERS, CLIENTS = 2, 3, 2
LEASE_S, LEAD_S, TICK_S = 3.0, 1.0, 0.3
SETTINGS = Settings(
    lease_s=LEASE_S,
    lead_s=LEAD_S,
    tick_s=TICK_S,
    beat_s=0.3,
    report_s=0.15,
    drain_s=2.0,
    redis_patience_s=20.0,
    keep_s=7 * 86_400.0,
    limit_high=1_000,
    limit_medium=1_000,
    limit_low=1_000,
)


class Fleet:
    """Starts processes: each place, as `worker-1`, has one process after another.

    Args:
        world: where they live.
        chance: for what the engines do.
        wishes: of the clients.
        ledger: what they got.
    """

    def __init__(self, world: World, chance: Random, wishes: Sequence[Wish], ledger: Ledger) -> None:
        self._world, self._chance, self._wishes, self._ledger = world, chance, wishes, ledger
        self._starts: dict[str, int] = {}
        self._stops: dict[str, StopSignals] = {}
        self._died: Callable[[Actor], None] = world.kill
        self.places = [f"{role}-{number}" for role, many in self._roles() for number in range(1, many + 1)]

    @property
    def workers(self) -> int:
        """Worker processes that were started."""
        return sum(many for place, many in self._starts.items() if place.startswith("worker"))

    @staticmethod
    def _roles() -> list[tuple[str, int]]:
        return [("scheduler", SCHEDULERS), ("worker", WORKERS), ("client", CLIENTS)]

    def on_death(self, died: Callable[[Actor], None]) -> None:
        """Name who ends a process whose engine has ended it."""
        self._died = died

    def start(self, place: str) -> Actor:
        """Start the next process of a place."""
        role, number = place.split("-")
        self._starts[place] = self._starts.get(place, 0) + 1
        name = f"{place}.{self._starts[place]}"
        match role:
            case "scheduler":
                return self._world.spawn(role, name, self._scheduler)
            case "worker":
                self._stops[name] = StopSignals()
                return self._world.spawn(role, name, self._worker)
            case _:
                mine = self._wishes[int(number) - 1 :: CLIENTS]
                return self._world.spawn(role, name, lambda actor: Customer(actor, mine, self._ledger, SETTINGS).run())

    def drain(self, actor: Actor) -> None:
        """Tell a worker to finish and go."""
        self._stops[actor.name].signal()

    async def _scheduler(self, actor: Actor) -> None:
        await run_scheduler(SETTINGS, redis_url=heartbeat.register(actor.redis, actor.name))

    async def _worker(self, actor: Actor) -> None:
        engine = SimEngine(actor.name, self._chance, self._chance.randint(2, 4), lambda: self._died(actor))
        options = WorkerOptions(engine, (MODEL,), pool=SHARD.pool, label=actor.name)
        url = heartbeat.register(actor.redis, actor.name)
        await run_worker(SETTINGS, options, redis_url=url, stop=self._stops[actor.name])


def place_of(actor: Actor) -> str:
    """Where the process stands."""
    return actor.name.partition(".")[0]
