"""Chunks that are kept until somebody needs them, in the space of their text."""

from collections.abc import Iterator

from protocol.wire import JsonObject
from worker.assemble import merge_chunks

MERGE_EVERY = 64


class Gathered:
    """Chunks of one attempt in order; neighbours that only add text become one now and then.

    Chunks that can't be merged, as with log probabilities or tool calls, are looked at again only once there are twice
    as many: an answer of them costs time in proportion to its length.

    Attributes:
        count: how many were added.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._chunks: list[JsonObject] = []
        self._merge_at = MERGE_EVERY
        self.count = 0

    def add(self, chunk: JsonObject) -> None:
        """Take the next one."""
        self._chunks.append(chunk)
        self.count += 1
        if len(self._chunks) >= self._merge_at:
            self._chunks = merge_chunks(self._chunks)
            self._merge_at = max(MERGE_EVERY, 2 * len(self._chunks))

    def merged(self) -> list[JsonObject]:
        """As few chunks as say the same."""
        return merge_chunks(self._chunks) if len(self._chunks) > 1 else list(self._chunks)

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._chunks)

    def __iter__(self) -> Iterator[JsonObject]:
        """Those that are kept."""
        return iter(self._chunks)
