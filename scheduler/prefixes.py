"""What the leased workers' engines have in their prefix caches, read when it changed, but not all the time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protocol.call import value_of
from protocol.errors import FleetError, WrongType
from protocol.watch import WorkerNow

EVERY_S = 1.0
"""A worker's prefixes change with nearly every prompt; they are read so often at most."""


@dataclass(frozen=True, slots=True)
class _Known:
    """Prefix hashes, as of a version of theirs and a time in seconds."""

    version: int = 0
    read_at: float = -math.inf
    hashes: frozenset[str] = frozenset()


NOTHING = _Known()


class Prefixes:
    """Keeps the last that was read of each worker."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def hashes(self) -> dict[str, frozenset[str]]:
        """Worker id → prefix hashes."""
        return {worker: known.hashes for worker, known in self._known.items()}

    def due(self, workers: Mapping[str, WorkerNow], now_s: float) -> list[str]:
        """The workers whose prefixes are to be read now; all that are not among `workers` are forgotten."""
        self._known = {worker: known for worker, known in self._known.items() if worker in workers}
        last = {worker: self._known.get(worker, NOTHING) for worker in workers}
        return [
            worker
            for worker, now in workers.items()
            if now.prefixed != last[worker].version and now_s - last[worker].read_at >= EVERY_S
        ]

    def learn(
        self, read: Sequence[tuple[str, int]], answers: Sequence[frozenset[str] | FleetError], now_s: float
    ) -> None:
        """Take in what was read of (worker, version) each. It may be newer than the version: then it is read again.

        Raises:
            FleetError: Redis did not answer.
        """
        for (worker, version), answer in zip(read, answers, strict=True):
            hashes = NOTHING.hashes if isinstance(answer, WrongType) else value_of(answer)
            self._known[worker] = _Known(version, now_s, hashes)
