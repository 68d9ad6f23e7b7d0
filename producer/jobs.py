"""A submitted job in the user's hands."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from producer.events import Event
from protocol.allowance import Allowance
from protocol.handle import Handle
from protocol.messages import JobRecord, Outcome
from protocol.states import State


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A look at a job. Waits are in ms, None while they have not ended."""

    handle: str
    record: JobRecord
    place: int | None
    """How many jobs stand before it in its lane; None when it is not queued."""

    @property
    def queue_ms(self) -> int | None:
        """From its submission to its last start."""
        return self._since_submitted(self.record.started_ms)

    @property
    def ttft_ms(self) -> int | None:
        """From its submission to its first token."""
        return self._since_submitted(self.record.first_token_ms)

    @property
    def total_ms(self) -> int | None:
        """From its submission to its end."""
        return self._since_submitted(self.record.finished_ms)

    def _since_submitted(self, moment_ms: int) -> int | None:
        return max(0, moment_ms - self.record.submitted_ms) if moment_ms else None


class Operations(Protocol):
    """What a job asks of its fleet."""

    async def result(self, handle: Handle, timeout: float | None = None) -> Outcome:
        """Wait for the end."""
        ...

    def follow(self, handle: Handle, after: str = "") -> AsyncGenerator[Event, None]:
        """Its events."""
        ...

    def text(self, handle: Handle) -> AsyncGenerator[str, None]:
        """Its text."""
        ...

    async def cancel(self, handle: Handle) -> State:
        """End it."""
        ...

    async def job(self, handle: Handle) -> JobInfo:
        """Look at it."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """A submitted job: its handle, and what can be done with it."""

    handle: Handle
    created: bool
    """False when the id named a job that was there already with the same body."""
    fleet: Operations
    allowance: Allowance | None = None
    """What its API key has left; None where it counts for none."""

    def __str__(self) -> str:
        """The handle, as the command line takes it."""
        return str(self.handle)

    async def result(self, timeout: float | None = None) -> Outcome:
        """As `Fleet.result`."""
        return await self.fleet.result(self.handle, timeout)

    def follow(self, after: str = "") -> AsyncGenerator[Event, None]:
        """As `Fleet.follow`."""
        return self.fleet.follow(self.handle, after)

    def text(self) -> AsyncGenerator[str, None]:
        """As `Fleet.text`."""
        return self.fleet.text(self.handle)

    async def cancel(self) -> State:
        """As `Fleet.cancel`."""
        return await self.fleet.cancel(self.handle)

    async def info(self) -> JobInfo:
        """As `Fleet.job`."""
        return await self.fleet.job(self.handle)
