"""What prefix reuse can reach at most: all caches as one, with the least recently used blocks evicted."""

from collections import OrderedDict
from collections.abc import Iterable

from tokenfleet.simulate.job import Request


def pooled_lru(requests: Iterable[Request], kv_tokens: int, block_tokens: int) -> float:
    """The share of the prompt tokens that one cache of so many tokens would have had.

    Args:
        requests: in the order of their arrival.
        kv_tokens: of all workers together.
        block_tokens: what a request's block names stand for.
    """
    room = kv_tokens // block_tokens
    cache: OrderedDict[int, None] = OrderedDict()
    hits = tokens = 0
    for request in requests:
        tokens += request.prompt_tokens
        blocks = request.blocks[: request.prompt_tokens // block_tokens]
        hits += block_tokens * _leading(blocks, cache)
        # From its end, so that a chain's beginning is the last to go.
        for block in reversed(blocks):
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > room:
            cache.popitem(last=False)
    return hits / tokens if tokens else 0.0


def _leading(blocks: Iterable[int], cache: OrderedDict[int, None]) -> int:
    count = 0
    for block in blocks:
        if block not in cache:
            break
        count += 1
    return count
