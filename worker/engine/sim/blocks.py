"""The KV cache in blocks: what is held, what is shared, and what may be evicted (oldest use first)."""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence

BlockHash = Hashable
"""Names a block's tokens and all tokens before it; equal hashes mean an equal prefix."""


class BlockPool:
    """Counts blocks as vLLM's block pool does: a released block keeps its content until its room is needed.

    A block is *private* (its content is not complete, or held twice), *shared* (named by a hash, with one or
    more holders) or *idle* (named by a hash, without a holder).
    """

    def __init__(self, capacity: int) -> None:
        """Begin empty, with room for `capacity` blocks."""
        self.capacity = capacity
        self._private = 0
        self._holders: dict[BlockHash, int] = {}
        self._idle: OrderedDict[BlockHash, None] = OrderedDict()

    @property
    def used(self) -> int:
        """Blocks that some sequence holds."""
        return self._private + len(self._holders)

    @property
    def free(self) -> int:
        """Blocks that can be taken, evicting idle ones where needed."""
        return self.capacity - self.used

    def names(self) -> set[BlockHash]:
        """Of all blocks that are in the cache."""
        return self._holders.keys() | self._idle.keys()

    def share_prefix(self, chain: Iterable[BlockHash]) -> list[BlockHash]:
        """Hold the longest cached prefix of `chain`, and return it."""
        held: list[BlockHash] = []
        for block in chain:
            if block in self._holders:
                self._holders[block] += 1
            elif block in self._idle:
                del self._idle[block]
                self._holders[block] = 1
            else:
                break
            held.append(block)
        return held

    def take(self, count: int) -> bool:
        """Hold `count` private blocks; False, and nothing taken, when there is no room."""
        if count > self.free:
            return False
        self._private += count
        while self.used + len(self._idle) > self.capacity:
            self._idle.popitem(last=False)
        return True

    def publish(self, block: BlockHash) -> bool:
        """Name one private block, so that others can share it; False when the name has a holder already."""
        if block in self._holders:
            return False
        self._idle.pop(block, None)
        self._private -= 1
        self._holders[block] = 1
        return True

    def release(self, shared: Sequence[BlockHash], private: int) -> None:
        """Let go of blocks. A chain's end becomes idle first: it is worthless without its beginning."""
        self._private -= private
        for block in reversed(shared):
            if self._holders[block] > 1:
                self._holders[block] -= 1
            else:
                del self._holders[block]
                self._idle[block] = None
