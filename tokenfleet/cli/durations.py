"""Durations as people write them: `90`, `90s`, `5m`, `6h`, `2d`, `1h30m`; and moments and speeds as they read them."""

import re
from datetime import datetime

import click

_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_BARE = re.compile(r"\d+(?:\.\d+)?")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+\Z")


def seconds_of(text: str) -> float:
    """Seconds; a bare number is seconds.

    Raises:
        ValueError: `text` is no duration.
    """
    text = text.strip().lower()
    if _BARE.fullmatch(text):
        return float(text)
    if not _WHOLE.match(text):
        msg = f"{text!r} is no duration"
        raise ValueError(msg)
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))


def duration(text: str) -> float:
    """The type of an option that takes a duration and yields seconds."""
    try:
        return seconds_of(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}: write 90s, 5m, 6h or 1h30m") from None


def long_duration(text: str) -> float:
    """As `duration`, for what lasts minutes or hours: a bare number, which would be seconds, is refused."""
    if _BARE.fullmatch(text.strip()):
        text = text.strip()
        raise click.BadParameter(f"{text} of what? write {text}s, {text}m or {text}h")
    return duration(text)


def in_words(seconds: float) -> str:
    """Short text for people: `40 ms`, `1.4 s`, `12 s`, `3 min`, `2.1 h`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def moment(time_ms: int) -> str:
    """A time of Redis's clock as people here read it; empty for 0, which is never."""
    return datetime.fromtimestamp(time_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S") if time_ms else ""


def short_moment(time_ms: int) -> str:
    """The same where there is little room, to the minute and without the year."""
    return datetime.fromtimestamp(time_ms / 1000).astimezone().strftime("%m-%d %H:%M")


def speed(a_second: float) -> str:
    """So many a second: one decimal, below 1 the first two digits."""
    return f"{a_second:,.1f}" if a_second >= 1 or not a_second else f"{a_second:.2g}"
