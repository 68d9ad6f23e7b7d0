"""Which starts of engines were cut off by kills of their workers."""

from collections import Counter
from pathlib import Path

from bench.chaos.held import held_by
from bench.chaos.journal import read
from protocol.handle import Shard
from tests.support.servers import Server

START, OVER = "start", "over"
"""What an engine notes of a request: that it starts on it, and that it has ended or was stopped."""


class Cuts:
    """Collects them, kill by kill; attempt numbers never come again, so each start counts once."""

    def __init__(self, server: Server, shard: Shard) -> None:
        """None yet."""
        self._server, self._shard = server, shard
        self._dead: set[str] = set()
        self._cut: set[tuple[int, int]] = set()

    def __len__(self) -> int:
        """How many rows were in flight at the kills, all in all."""
        return len(self._cut)

    @property
    def rows(self) -> Counter[int]:
        """Line of the input → how often a kill has cut it off."""
        return Counter(number for number, _ in self._cut)

    def note(self, label: str, journal: Path) -> int:
        """This worker was just killed; how many rows its engine had.

        Those that it had not ended, and those whose ends Redis has not recorded. What was only assigned is none.
        """
        facts = [fact for fact, _ in read(journal)]
        begun, over = ({(fact.number, fact.attempt) for fact in facts if fact.kind == kind} for kind in (START, OVER))
        held = held_by(self._server, self._shard, label, self._dead)
        unrecorded = {(line_of(own_id), attempt) for own_id, attempt in held} & begun
        new = (begun - over | unrecorded) - self._cut
        self._cut |= new
        return len(new)


def line_of(own_id: str) -> int:
    """The line of the input that a job's id names."""
    return int(own_id.rpartition("-")[2])
