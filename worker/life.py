"""One life of a worker: its id, and the guard that ends all work before its lease does."""

import os
import secrets
import socket
from dataclasses import dataclass

from protocol.clock import Clock
from protocol.handle import is_name

MARGIN = 0.1
"""Share of the lease that is left for aborting what runs."""


def default_label() -> str:
    """Host name and process id."""
    return f"{socket.gethostname()}-{os.getpid()}"


@dataclass(frozen=True, slots=True)
class Life:
    """From joining to leaving or being reclaimed. The id is never used again; the label is for people.

    The id ends with the label where that may be a name: so a Redis user can be kept to its own worker's keys.
    """

    id: str
    label: str


def new_life(label: str) -> Life:
    """A life that nobody has had before."""
    label, own = label or default_label(), secrets.token_hex(8)
    return Life(f"{own}.{label}" if is_name(label) else own, label)


class LeaseGuard:
    """Says by our own clock when everything must be aborted: before Redis can give our jobs to another worker.

    A lease runs from when Redis got the beat, which is after we sent it; counted from the sending, it ends too early
    here, never too late.
    """

    def __init__(self, clock: Clock, lease_s: float) -> None:
        self._clock, self._held_s = clock, lease_s * (1 - MARGIN)
        self._until_s: float | None = None

    def renewed(self, sent_s: float) -> None:
        """A beat that was sent at `sent_s` (monotonic) was accepted. May be called from another thread."""
        self._until_s = max(self._until_s or 0.0, sent_s + self._held_s)

    @property
    def joined(self) -> bool:
        """Whether there ever was a lease."""
        return self._until_s is not None

    @property
    def over(self) -> bool:
        """Whether it is time to abort; never before the first lease, when nothing can run."""
        return self._until_s is not None and self._clock.monotonic() >= self._until_s
