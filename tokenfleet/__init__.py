"""tokenfleet: a message-queue worker fleet for LLM inference.

What users import stands here, and is loaded when it is first used: `tokenfleet --help` must not wait for a client.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from producer.batch import BatchSummary as BatchSummary
    from producer.batch import run_batch as run_batch
    from producer.events import End as End
    from producer.events import Event as Event
    from producer.events import Restart as Restart
    from producer.events import Tokens as Tokens
    from producer.events import Truncated as Truncated
    from producer.fleet import Fleet as Fleet
    from producer.jobs import Job as Job
    from producer.jobs import JobInfo as JobInfo
    from producer.requests import JobRequest as JobRequest
    from producer.status import FleetStatus as FleetStatus
    from producer.sync import SyncFleet as SyncFleet
    from protocol.errors import ConflictingId as ConflictingId
    from protocol.errors import FleetError as FleetError
    from protocol.errors import InvalidId as InvalidId
    from protocol.errors import InvalidRequest as InvalidRequest
    from protocol.errors import LibraryMissing as LibraryMissing
    from protocol.errors import NotAllowed as NotAllowed
    from protocol.errors import QueueFull as QueueFull
    from protocol.errors import QuotaExceeded as QuotaExceeded
    from protocol.errors import RateLimited as RateLimited
    from protocol.errors import StoreFull as StoreFull
    from protocol.errors import StoreUnavailable as StoreUnavailable
    from protocol.errors import TooLarge as TooLarge
    from protocol.errors import UnknownJob as UnknownJob
    from protocol.errors import UnknownModel as UnknownModel
    from protocol.errors import WaitTimeout as WaitTimeout
    from protocol.handle import Handle as Handle
    from protocol.messages import Outcome as Outcome
    from protocol.settings import Settings as Settings
    from protocol.states import Priority as Priority
    from protocol.states import State as State

_HOMES = {
    "producer.batch": ("BatchSummary", "run_batch"),
    "producer.events": ("End", "Event", "Restart", "Tokens", "Truncated"),
    "producer.fleet": ("Fleet",),
    "producer.jobs": ("Job", "JobInfo"),
    "producer.requests": ("JobRequest",),
    "producer.status": ("FleetStatus",),
    "producer.sync": ("SyncFleet",),
    "protocol.errors": (
        "ConflictingId",
        "FleetError",
        "InvalidId",
        "InvalidRequest",
        "LibraryMissing",
        "NotAllowed",
        "QueueFull",
        "QuotaExceeded",
        "RateLimited",
        "StoreFull",
        "StoreUnavailable",
        "TooLarge",
        "UnknownJob",
        "UnknownModel",
        "WaitTimeout",
    ),
    "protocol.handle": ("Handle",),
    "protocol.messages": ("Outcome",),
    "protocol.settings": ("Settings",),
    "protocol.states": ("Priority", "State"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(_HOME_OF)
