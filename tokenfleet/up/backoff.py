"""How long to wait before a child that died is started again."""

FIRST_S = 0.2
LONGEST_S = 10.0
STEADY_S = 10.0
"""A child that lived so long was well: the next pause is short again."""


def next_pause_s(last_pause_s: float, lived_s: float) -> float:
    """Double the pause for each death in a row, from `FIRST_S` to `LONGEST_S`; 0 as the last pause means none yet."""
    if lived_s >= STEADY_S or not last_pause_s:
        return FIRST_S
    return min(2 * last_pause_s, LONGEST_S)
