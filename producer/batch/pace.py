"""How fast a batch goes, when it will end, and whether that is too late. Pure: the caller tells the time."""

from collections import deque

LOOK_BACK_S, LOOK_BACK_ROWS, LONGEST_S = 30.0, 30, 120.0
"""What counts: so long, and longer where so few rows ended in it, but no longer than that: slow rows end in waves."""
LEAST_S, LEAST_ROWS = 5.0, 10
"""Nothing is predicted from less time, nor from fewer rows, unless they took nearly the whole half minute."""
MARKS_S = 0.25
"""How close together the noted moments are."""


class Pace:
    """The last half minute, or up to two minutes where rows are slow; times in seconds of one clock."""

    def __init__(self, now_s: float) -> None:
        """Begin, with nothing done."""
        self._marks = deque([(now_s, 0, 0)])

    def note(self, now_s: float, rows: int, tokens: int) -> None:
        """So many rows and output tokens are done, all in all, since the beginning."""
        last_s = self._marks[-1][0]
        if len(self._marks) > 1 and now_s - self._marks[-2][0] < MARKS_S:
            self._marks.pop()
        self._marks.append((max(now_s, last_s), rows, tokens))
        while self._spare(*self._marks[1][:2]):
            self._marks.popleft()

    def _spare(self, at_s: float, rows: int) -> bool:
        """Whether enough has happened since a moment to look back no further."""
        last_s, last, _ = self._marks[-1]
        seconds = last_s - at_s
        return seconds > LOOK_BACK_S and (last - rows >= LOOK_BACK_ROWS or seconds > LONGEST_S)

    @property
    def rows_per_s(self) -> float:
        """Rows a second."""
        return self._speed(1)

    @property
    def tokens_per_s(self) -> float:
        """Output tokens a second."""
        return self._speed(2)

    def left_s(self, rows: int) -> float | None:
        """How long so many rows will take; None while nobody can know."""
        (first_s, first, _), (last_s, last, _) = self._marks[0], self._marks[-1]
        speed, seconds = self.rows_per_s, last_s - first_s
        enough = seconds >= LEAST_S and (last - first >= LEAST_ROWS or seconds >= LOOK_BACK_S - LEAST_S)
        return rows / speed if speed > 0 and enough else None

    def late_s(self, rows: int, ends_at: float | None) -> float | None:
        """How long after `ends_at` so many rows will be done; None in time, without an end, or while unknown."""
        left_s = self.left_s(rows)
        if left_s is None or ends_at is None:
            return None
        late_s = self._marks[-1][0] + left_s - ends_at
        return late_s if late_s > 0 else None

    def _speed(self, which: int) -> float:
        first, last = self._marks[0], self._marks[-1]
        return (last[which] - first[which]) / (last[0] - first[0]) if last[0] > first[0] else 0.0
