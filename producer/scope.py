"""Whose jobs a client may know of."""

from dataclasses import dataclass

from protocol.errors import InvalidRequest
from protocol.handle import Handle

_NO_ID = "-" * 65
"""Longer than an own id may be: no job has it."""


@dataclass(frozen=True, slots=True)
class Scope:
    """One tenant, or all: then `only` is empty."""

    only: str = ""

    def known(self, handle: Handle) -> Handle:
        """The job to ask Redis for: for another tenant's one that is not there.

        So a foreign job and a missing one are the same question, with the same answer after the same time.
        """
        return handle if self.holds(handle) else Handle(handle.shard, self.only, _NO_ID)

    def holds(self, handle: Handle) -> bool:
        """Whether the job is one that the client may know of."""
        return self.only in ("", handle.tenant)

    def tenant(self, asked: str, default: str) -> str:
        """The tenant to submit for: the one that is asked for, else the default.

        Raises:
            InvalidRequest: another one than the client's.
        """
        if self.only and asked not in ("", self.only):
            raise InvalidRequest("tenant: this client acts for one tenant only", "Leave it out.")
        return asked or self.only or default


ALL = Scope()
