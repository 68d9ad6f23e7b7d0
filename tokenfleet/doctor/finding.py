"""What a check found."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report."""

    check: str
    """Which check: stable, for scripts."""
    level: Level
    """`fail`: jobs are lost, or are not run; `warn`: they may be, one day."""
    said: str
    """What was seen."""
    advice: str = ""
    """What to change; empty when all is well."""


def ok(check: str, said: str) -> Finding:
    """All is well."""
    return Finding(check, "ok", said)


def warn(check: str, said: str, advice: str) -> Finding:
    """It works, and will not always."""
    return Finding(check, "warn", said, advice)


def fail(check: str, said: str, advice: str) -> Finding:
    """It does not work, or loses jobs."""
    return Finding(check, "fail", said, advice)
