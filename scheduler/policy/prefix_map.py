"""Which worker holds which prompt prefixes: what it told, and what was sent to it since."""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence

SENT_KEPT = 4096
"""Hashes sent to one worker that are remembered: the last ones."""
TOLD_LATE_MS = 3_000.0
"""What was sent longer before a worker told is in what it told, or was evicted since."""
_NOTHING: Mapping[str, float] = {}


class PrefixMap:
    """Bounded, and corrected by those workers that tell; of the others it believes what it sent."""

    def __init__(self) -> None:
        self._told: dict[str, frozenset[str]] = {}
        self._sent: dict[str, OrderedDict[str, float]] = {}

    def assigned(self, worker: str, prefix: Sequence[str], now_ms: float) -> None:
        """A prompt with these blocks went to the worker."""
        if not prefix:
            return
        sent = self._sent.setdefault(worker, OrderedDict())
        for block in prefix:
            sent[block] = now_ms
            sent.move_to_end(block)
        while len(sent) > SENT_KEPT:
            sent.popitem(last=False)

    def told(self, worker: str, blocks: frozenset[str], now_ms: float) -> None:
        """The worker said what it holds now."""
        self._told[worker] = blocks
        sent = self._sent.get(worker)
        while sent and next(iter(sent.values())) < now_ms - TOLD_LATE_MS:
            sent.popitem(last=False)

    def keep(self, workers: Collection[str]) -> None:
        """Forget all other workers."""
        self._told = {worker: blocks for worker, blocks in self._told.items() if worker in workers}
        self._sent = {worker: sent for worker, sent in self._sent.items() if worker in workers}

    def told_by(self, worker: str) -> frozenset[str]:
        """What it told last; empty before that."""
        return self._told.get(worker, frozenset())

    def sent_to(self, worker: str) -> Mapping[str, float]:
        """What was sent to it and is not told yet."""
        return self._sent.get(worker, _NOTHING)
