"""What the leased workers' engines have in their prefix caches, read when it changed, but not all the time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protocol.call import value_of
from protocol.errors import FleetError, Unreadable
from protocol.watch import WorkerNow
from scheduler.policy.prefix_map import PrefixMap

EVERY_S = 1.0
"""A worker's prefixes change with nearly every prompt; they are read so often at most."""
NO_HASHES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Read:
    """A version of a worker's prefixes, and when it was read in seconds."""

    version: int = 0
    at_s: float = -math.inf


NEVER = _Read()


class Prefixes:
    """Says whose prefixes are to be read, and tells a map what was read."""

    def __init__(self, prefix_map: PrefixMap) -> None:
        self._map = prefix_map
        self._read: dict[str, _Read] = {}

    def due(self, workers: Mapping[str, WorkerNow], now_s: float) -> list[str]:
        """The workers whose prefixes are to be read now; all that are not among `workers` are forgotten."""
        self._read = {worker: read for worker, read in self._read.items() if worker in workers}
        last = {worker: self._read.get(worker, NEVER) for worker in workers}
        return [
            worker
            for worker, now in workers.items()
            if now.prefixed != last[worker].version and now_s - last[worker].at_s >= EVERY_S
        ]

    def learn(
        self,
        read: Sequence[tuple[str, int]],
        answers: Sequence[frozenset[str] | FleetError],
        now_s: float,
        store_ms: float,
    ) -> None:
        """Take in what was read of (worker, version) each. It may be newer than the version: then it is read again.

        Args:
            read: what was asked for.
            answers: one for each.
            now_s: when, on the clock of `due`.
            store_ms: when, in Redis's time.

        Raises:
            FleetError: Redis did not answer.
        """
        for (worker, version), answer in zip(read, answers, strict=True):
            hashes = NO_HASHES if isinstance(answer, Unreadable) else value_of(answer)
            self._read[worker] = _Read(version, now_s)
            self._map.told(worker, hashes, store_ms)
