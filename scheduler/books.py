"""What a dispatcher keeps of its assignments, beside the reports."""

from collections.abc import Collection
from dataclasses import dataclass, field

from scheduler.policy.ledger import Ledger
from scheduler.policy.predictions import Predictions
from scheduler.policy.prefix_map import PrefixMap
from scheduler.policy.speeds import Speeds


@dataclass(frozen=True, slots=True)
class Books:
    """Each forgets a worker that is gone."""

    ledger: Ledger = field(default_factory=Ledger)
    speeds: Speeds = field(default_factory=Speeds)
    prefix_map: PrefixMap = field(default_factory=PrefixMap)
    predictions: Predictions = field(default_factory=Predictions)

    def keep(self, workers: Collection[str]) -> None:
        """Forget all other workers."""
        self.ledger.keep(workers)
        self.speeds.keep(workers)
        self.prefix_map.keep(workers)
