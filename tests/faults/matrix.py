"""The fault matrix: each fault's name, what is expected, and the scenario that plays it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.faults.stage import Stage


@dataclass(frozen=True)
class Seen:
    """What a scenario saw; it raises AssertionError where that is not what is expected.

    Attributes:
        what: for people.
        recovery_s: from the fault to the moment when its effect was over; None where that means nothing.
    """

    what: str
    recovery_s: float | None = None


Scenario = Callable[[Stage], Awaitable[Seen]]


@dataclass(frozen=True)
class Fault:
    """One row.

    Attributes:
        name: of the fault.
        expected: what must happen.
        scenario: plays it on a stage of its own; None where tests elsewhere do.
        server: `valkey` or `redis7`.
        extra: flags of the server's.
        slow: too long for the test suite: played by `make faults` alone.
        tests: where else it is tested, as pytest names them.
    """

    name: str
    expected: str
    scenario: Scenario | None = None
    server: str = "valkey"
    extra: tuple[str, ...] = ()
    slow: bool = False
    tests: tuple[str, ...] = ()
