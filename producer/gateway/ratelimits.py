"""`x-ratelimit-…`: what a key has left of its limits a minute."""

from protocol.allowance import Allowance

_KINDS, _FIGURES = ("requests", "tokens"), ("limit", "remaining", "reset")
RATE_LIMITS = tuple(f"x-ratelimit-{figure}-{kind}" for figure in _FIGURES for kind in _KINDS)


def left_of(allowance: Allowance | None) -> dict[str, str]:
    """What a key has left, in OpenAI's headers."""
    kinds = {"requests": allowance.requests, "tokens": allowance.tokens} if allowance else {}
    meters = {kind: meter for kind, meter in kinds.items() if meter}
    limits = {f"x-ratelimit-limit-{kind}": str(meter.limit) for kind, meter in meters.items()}
    left = {f"x-ratelimit-remaining-{kind}": str(meter.remaining) for kind, meter in meters.items()}
    resets = {f"x-ratelimit-reset-{kind}": f"{meter.reset_s:g}s" for kind, meter in meters.items()}
    return limits | left | resets
