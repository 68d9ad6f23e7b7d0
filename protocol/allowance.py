"""What an API key has left of its limits, as an accepted or refused submit tells it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meter:
    """One limit a minute: `x-ratelimit-limit-…`, `-remaining-…` and `-reset-…`."""

    limit: int
    """So many a minute; also as many as can be had at once, after a minute of none."""
    remaining: int
    """So many can be had now."""
    reset_s: float
    """Until all of them can be had again, if no more are taken."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """Each is None where the key has no such limit."""

    requests: Meter | None = None
    tokens: Meter | None = None
