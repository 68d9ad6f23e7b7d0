"""Events over a real socket into the index."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import structlog
import zmq
import zmq.asyncio

from tests.support.waiting import eventually
from worker.engine.prefix_index import PrefixIndex
from worker.engine.vllm.kv_events import KvFeed, follow

PREFIX = ("h1", "h2")


def stored(*hashes: int | bytes, parent: int | None = None, session: str = "r1") -> dict[str, object]:
    """As vLLM sends it, with members that nobody here needs."""
    return {
        "type": "BlockStored",
        "block_hashes": list(hashes),
        "parent_block_hash": parent,
        "token_ids": list(range(16 * len(hashes))),
        "block_size": 16,
        "lora_id": None,
        "medium": "GPU",
        "extra_keys": [["salt"], None],
        "group_idx": 0,
        "session_id": session,
    }


def message(number: int, *events: object) -> list[bytes]:
    return [b"", number.to_bytes(8, "big"), msgspec.msgpack.encode([1.5, list(events), 0])]


@pytest.fixture
def index() -> PrefixIndex:
    """A prompt of 32 tokens and 2,048 characters is known: it needs two blocks."""
    made = PrefixIndex(block_tokens=16, kv_tokens=1600)
    made.prompt("r1", PREFIX, 2048, 32)
    return made


@pytest.fixture
def feed(index: PrefixIndex) -> KvFeed:
    return KvFeed(index)


def test_blocks_come_and_go(index: PrefixIndex, feed: KvFeed) -> None:
    feed.take(message(7, stored(1, 2)))
    assert index.hashes() == set(PREFIX)
    feed.take(message(8, {"type": "BlockRemoved", "block_hashes": [2], "medium": "GPU"}))
    assert index.hashes() == {"h1"}
    feed.take(message(9, {"type": "AllBlocksCleared"}))
    assert index.hashes() == frozenset()


def test_whole_hashes_are_names_too(index: PrefixIndex, feed: KvFeed) -> None:
    feed.take(message(0, stored(b"\x01" * 32, b"\x02" * 32)))
    assert index.hashes() == set(PREFIX)


@pytest.mark.parametrize("other", [{"medium": "CPU"}, {"group_idx": 1}])
def test_other_media_and_groups_are_left_out(index: PrefixIndex, feed: KvFeed, other: dict[str, object]) -> None:
    feed.take(message(0, stored(1, 2) | other))
    assert index.hashes() == frozenset()


@pytest.mark.parametrize(
    "lost",
    [
        message(2),
        [b"", b"\x01", b"garbage"],
        [b"only"],
        message(1, {"type": "SomethingNew", "block_hashes": []}),
        message(1, {"type": "BlockRemoved"}),
    ],
    ids=["gap", "garbage", "frames", "kind", "member"],
)
def test_what_can_not_be_followed_clears_the_index_and_is_said(
    index: PrefixIndex, feed: KvFeed, lost: list[bytes]
) -> None:
    feed.take(message(0, stored(1, 2)))
    with structlog.testing.capture_logs() as logs:
        feed.take(lost)
    assert index.hashes() == frozenset()
    assert [entry["event"] for entry in logs] == ["kv_events_lost"]
    index.prompt("r2", PREFIX, 2048, 32)
    feed.take(message(3 if lost == message(2) else 1, stored(1, 2, session="r2")))
    assert index.hashes() == set(PREFIX)


@pytest.fixture
async def endpoint(tmp_path: Path) -> str:
    return f"ipc://{tmp_path / 'kv'}"


@pytest.fixture
async def publisher(endpoint: str) -> AsyncIterator[zmq.asyncio.Socket]:
    with zmq.asyncio.Context() as context, context.socket(zmq.XPUB) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind(endpoint)
        yield socket


async def test_events_come_over_a_socket(index: PrefixIndex, publisher: zmq.asyncio.Socket, endpoint: str) -> None:
    following = asyncio.ensure_future(follow(endpoint, index))
    async with asyncio.timeout(5):
        # XPUB tells of the subscription; what is sent before it stands is lost.
        assert await publisher.recv() == b"\x01"
    await publisher.send_multipart(message(0, stored(1, 2)))
    await eventually(lambda: index.hashes() == set(PREFIX))
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following


async def test_an_endpoint_that_is_none_is_said(index: PrefixIndex) -> None:
    with structlog.testing.capture_logs() as logs:
        await follow("nonsense", index)
    assert [entry["event"] for entry in logs] == ["kv_events_off"]
