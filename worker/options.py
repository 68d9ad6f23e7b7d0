"""What a worker is told about itself."""

from dataclasses import dataclass

from protocol.errors import SetupError
from protocol.handle import Shard, check_name, check_text
from worker.engine.base import Engine
from worker.pool_name import pool_of

DEFAULT_SLOTS = 16


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """One worker: an engine, and what it serves."""

    engine: Engine
    models: tuple[str, ...]
    """Names under which jobs ask for what the engine serves; the first one names the pool."""
    pool: str = ""
    shard: int = 0
    shards: int = 1
    """How many shards the pool has; the same for all of its workers."""
    label: str = ""
    """What people call this worker; host and process id when empty."""
    slots: int = 0
    """Jobs at once; 0 takes what the engine can hold."""
    standby: bool = False
    """Loads the model and takes no jobs until it is promoted."""

    def place(self) -> Shard:
        """The shard that it works for.

        Raises:
            SetupError: no model is named, or the shard is not one of the pool's.
            InvalidId: the pool's name has other characters than a name may have, or a model's or the label is no text.
        """
        if not self.models:
            raise SetupError("a worker needs the name of a model", "Use --model NAME.")
        for kind, name in (*(("model", model) for model in self.models), ("label", self.label or "none")):
            check_text(kind, name)
        if not 0 <= self.shard < self.shards:
            raise SetupError(f"shard {self.shard} is not one of the pool's {self.shards}", "They count from 0.")
        return Shard(check_name("pool", self.pool or pool_of(self.models[0])), self.shard)
