"""What stays the same over a worker's lives."""

from dataclasses import dataclass

from redis.asyncio import Redis

from protocol.clock import Clock
from protocol.handle import Shard
from protocol.settings import Settings
from worker.duty import Duty
from worker.engine.base import Engine
from worker.keeper import EngineKeeper
from worker.load import LoadMeter
from worker.metrics import Metrics
from worker.options import WorkerOptions
from worker.states import StateClock
from worker.stop import StopSignals


@dataclass(frozen=True, slots=True)
class Station:
    """The parts that one life hands on to the next.

    Attributes:
        redis: for all but the heartbeat, which has its own connection to `redis_url`.
        metrics: told of what happens; None for nobody.
    """

    settings: Settings
    options: WorkerOptions
    redis_url: str
    redis: Redis
    shard: Shard
    keeper: EngineKeeper
    meter: LoadMeter
    duty: Duty
    states: StateClock
    stop: StopSignals
    clock: Clock
    metrics: Metrics | None = None

    @property
    def engine(self) -> Engine:
        """The engine that it keeps."""
        return self.options.engine

    @property
    def models(self) -> tuple[str, ...]:
        """The names that it was told to serve, then those that its engine names, such as adapters."""
        return tuple(dict.fromkeys((*self.options.models, *self.keeper.capacity.models)))
