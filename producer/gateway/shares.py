"""What each may have of something that all of a gateway's clients share."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from protocol.errors import RateLimited


class Shares:
    """Places that are held, counted by who holds them."""

    def __init__(self, most: int) -> None:
        """Let each have `most` at once; 0: as many as they like."""
        self._most = most
        self._held: Counter[str] = Counter()

    def take(self, holder: str) -> bool:
        """One more; False where that would be too many."""
        if self._most and self._held[holder] >= self._most:
            return False
        self._held[holder] += 1
        return True

    def give_back(self, holder: str) -> None:
        """One that was taken."""
        self._held[holder] -= 1
        if not self._held[holder]:
            del self._held[holder]

    @contextmanager
    def one(self, holder: str, kind: str) -> Iterator[None]:
        """One within the block.

        Raises:
            RateLimited: the holder has as many as it may; `kind` names the limit.
        """
        if not self.take(holder):
            raise RateLimited(kind, self._most)
        try:
            yield
        finally:
            self.give_back(holder)
