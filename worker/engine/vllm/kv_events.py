"""vLLM's events about the blocks of its KV cache, over ZMQ, into the prefix index."""

import asyncio
from collections.abc import Iterable

import msgspec
import zmq
import zmq.asyncio

from protocol.log import get_logger
from worker.engine.prefix_index import PrefixIndex

WAITING_MESSAGES = 10_000
"""So many messages wait for a busy event loop; what comes beyond is lost, which the numbers show."""
_log = get_logger("worker")


class Stored(msgspec.Struct, tag="BlockStored", gc=False):
    """Blocks were filled, in order, behind `parent_block_hash`. The token ids, most of the message, are skipped."""

    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None = None
    medium: str | None = None
    group_idx: int | None = None
    session_id: str | None = None


class Removed(msgspec.Struct, tag="BlockRemoved", gc=False):
    """Blocks lost their content."""

    block_hashes: list[int | bytes]
    medium: str | None = None
    group_idx: int | None = None


class Cleared(msgspec.Struct, tag="AllBlocksCleared", gc=False):
    """The cache is empty."""


Event = Stored | Removed | Cleared


class Batch(msgspec.Struct, array_like=True, gc=False):
    """What one step of the engine's scheduler did."""

    ts: float
    events: list[Event]


class KvFeed:
    """Applies messages to an index; one that is missing or unreadable makes what is known worthless."""

    def __init__(self, index: PrefixIndex) -> None:
        self._index = index
        self._decoder = msgspec.msgpack.Decoder(Batch)
        self._last: int | None = None

    def take(self, frames: list[bytes]) -> None:
        """A message: topic, number (8 bytes, big-endian), and a msgpack array of time, events and rank."""
        try:
            _, number, payload = frames
            batch = self._decoder.decode(payload)
        except (ValueError, msgspec.MsgspecError) as error:
            self._forget("unreadable", kind=type(error).__name__)
            return
        sequence = int.from_bytes(number, "big")
        if self._last is not None and sequence != self._last + 1:
            self._forget("gap", after=self._last, came=sequence)
        self._last = sequence
        self._apply(batch.events)

    def _apply(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Cleared):
                self._index.cleared()
            elif event.group_idx or event.medium not in (None, "GPU"):
                # Layers of other groups repeat what the first tells; other media are slower tiers behind the cache.
                continue
            elif isinstance(event, Stored):
                parent = None if event.parent_block_hash is None else _number(event.parent_block_hash)
                self._index.stored(event.session_id or "", parent, [_number(name) for name in event.block_hashes])
            else:
                self._index.removed([_number(name) for name in event.block_hashes])

    def _forget(self, why: str, **details: str | int) -> None:
        self._index.cleared()
        _log.warning("kv_events_lost", why=why, **details)


async def follow(endpoint: str, index: PrefixIndex) -> None:
    """Subscribe and apply until cancelled.

    Args:
        endpoint: `ipc://…` or `tcp://…`; what is published before the connection stands is not seen.
        index: where to.
    """
    feed = KvFeed(index)
    with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, WAITING_MESSAGES)
        socket.subscribe(b"")
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as error:
            _log.warning("kv_events_off", endpoint=endpoint, why=str(error))
            return
        while True:
            feed.take(await socket.recv_multipart())
            # A flood of messages that wait must not hold up the event loop.
            await asyncio.sleep(0)


def _number(name: int | bytes) -> int:
    """A block's name as a number: vLLM sends integers, or with a setting the whole hash."""
    return name if isinstance(name, int) else int.from_bytes(name, "big")
