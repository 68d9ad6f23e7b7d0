"""Which worker holds which prompt prefixes: what it told, and what was sent to it since."""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

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
        self._holders: dict[str, set[str]] = {}

    @property
    def holders(self) -> Mapping[str, AbstractSet[str]]:
        """The workers that hold a block, as told or sent, by its hash."""
        return self._holders

    def assigned(self, worker: str, prefix: Sequence[str], now_ms: float) -> None:
        """A prompt with these blocks went to the worker."""
        if not prefix:
            return
        sent = self._sent.setdefault(worker, OrderedDict())
        for block in prefix:
            sent[block] = now_ms
            sent.move_to_end(block)
            self._holders.setdefault(block, set()).add(worker)
        while len(sent) > SENT_KEPT:
            self._lose(worker, (sent.popitem(last=False)[0],))

    def told(self, worker: str, blocks: frozenset[str], now_ms: float) -> None:
        """The worker said what it holds now."""
        before, self._told[worker] = self.told_by(worker), blocks
        for block in blocks - before:
            self._holders.setdefault(block, set()).add(worker)
        sent = self._sent.get(worker)
        while sent and next(iter(sent.values())) < now_ms - TOLD_LATE_MS:
            self._lose(worker, (sent.popitem(last=False)[0],))
        self._lose(worker, before - blocks)

    def keep(self, workers: Collection[str]) -> None:
        """Forget all other workers."""
        for worker in (self._told.keys() | self._sent.keys()) - set(workers):
            lost = {*self._told.pop(worker, ()), *self._sent.pop(worker, ())}
            self._lose(worker, lost)

    def told_by(self, worker: str) -> frozenset[str]:
        """What it told last; empty before that."""
        return self._told.get(worker, frozenset())

    def sent_to(self, worker: str) -> Mapping[str, float]:
        """What was sent to it and is not told yet."""
        return self._sent.get(worker, _NOTHING)

    def _lose(self, worker: str, blocks: Iterable[str]) -> None:
        """Of these blocks the worker holds those no longer that are neither told nor sent."""
        told, sent = self.told_by(worker), self.sent_to(worker)
        for block in blocks:
            holders = self._holders.get(block)
            if holders and block not in told and block not in sent:
                holders.discard(worker)
                if not holders:
                    del self._holders[block]
