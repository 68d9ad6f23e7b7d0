"""What a worker counts of its own jobs, for the load report. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from telemetry.instruments import Bars

STEADY_TOKENS = 5
"""From so many tokens on a stream's tempo says something."""
LONG_PROMPT_TOKENS = 8_192
LONG_FACTOR = 2
"""Behind a longer prompt each token may take so many times the target."""


@dataclass(slots=True)
class Tempo:
    """The tokens of an attempt, as they come from its engine.

    Attributes:
        first_s: when the first one came.
        chunks: how many pieces of its first choice came.
        between: counts the seconds between them; None where nobody asks.
        last_s: when the last one came, as far as that is counted.
    """

    first_s: float
    chunks: int = 0
    between: Bars | None = None
    last_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Stream:
    """An attempt that streams, since its first token."""

    tempo: Tempo
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Of the attempts that are not over.

    Attributes:
        fresh: those that are taken and not on the engine yet.
        prefilling: those without a first token, fresh ones too.
        pending_prefill_tokens: what the engine must compute of their prompts.
        slow_share: see `slow_share`.
        firsts: (attempt, ms from its start) of the last first tokens.
        taken: the highest attempt that is contained.
    """

    fresh: int = 0
    prefilling: int = 0
    pending_prefill_tokens: int = 0
    slow_share: float = 0.0
    firsts: tuple[tuple[int, int], ...] = ()
    taken: int = 0


def slow_share(streams: Iterable[Stream], now_s: float, target_ms: float, stream_tokens: int = 1) -> float:
    """Of the streams with `STEADY_TOKENS` or more: those whose tokens since the first took longer than the target.

    The time up to now counts, so a stream that stalls is slow before its next token shows it.

    Args:
        streams: tokens that came so far.
        now_s: on the clock of `Tempo.first_s`.
        target_ms: for each token.
        stream_tokens: tokens of a chunk after the first. All but one of the next may be there and not told yet: they
            count as if they were.
    """
    steady = slow = 0
    for stream in streams:
        later = (stream.tempo.chunks - 1) * stream_tokens
        if later + 1 >= STEADY_TOKENS:
            steady += 1
            factor = LONG_FACTOR if stream.prompt_tokens > LONG_PROMPT_TOKENS else 1
            allowed_ms = factor * target_ms * (later + stream_tokens - 1)
            slow += 1000 * (now_s - stream.tempo.first_s) > allowed_ms
    return slow / steady if steady else 0.0
