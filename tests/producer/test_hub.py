"""What a follower hears."""

import asyncio

import pytest
from redis.exceptions import NoPermissionError

from producer import hub
from producer.hub import HELD_BYTES, HELD_MESSAGES, Subscription
from protocol import store
from protocol.primary import heard


async def test_messages_come_in_order_and_a_doubt_replaces_what_came_before() -> None:
    heard = Subscription()
    heard.tell(b"1")
    heard.tell(b"2")
    assert await heard.hear() == [b"1", b"2"]
    heard.tell(b"3")
    heard.doubt()
    heard.tell(b"4")
    assert await heard.hear() is None
    assert await heard.hear() == [b"4"]


async def test_a_slow_reader_is_sent_to_the_log_instead_of_filling_memory() -> None:
    heard = Subscription()
    for _ in range(HELD_MESSAGES + 1):
        heard.tell(b"x")
    assert await heard.hear() is None
    heard.tell(b"y")
    assert await heard.hear() == [b"y"]


async def test_large_messages_send_a_slow_reader_to_the_log_sooner() -> None:
    """One that is larger than all that is held is heard all the same, as long as it is alone."""
    heard = Subscription()
    heard.tell(b"x" * (HELD_BYTES + 1))
    assert await heard.hear() == [b"x" * (HELD_BYTES + 1)]
    for _ in range(3):
        heard.tell(b"x" * (HELD_BYTES // 2))
    assert await heard.hear() is None
    heard.tell(b"y")
    assert await heard.hear() == [b"y"]


async def test_silence_sends_to_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "SILENCE_S", 0.01)
    assert await Subscription().hear() is None


async def test_who_follows_a_new_job_looks_only_after_a_silence_or_when_it_is_subscribed_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new = Subscription(new=True)
    new.begin()
    new.tell(b"1")
    assert await new.hear() == [b"1"]
    new.begin()
    assert await new.hear() is None
    monkeypatch.setattr(hub, "NEW_S", 0.01)
    for begins in (True, False):
        silent = Subscription(new=True)
        if begins:
            silent.begin()
        assert await silent.hear() is None
    # What was said between that look and the subscription was heard by nobody.
    silent.begin()
    assert await silent.hear() is None


async def test_a_subscription_that_is_refused_beside_a_message_is_an_error_of_redis() -> None:
    """The hub makes its connection anew then; any other error would end it."""
    told = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            words = [await _word(reader) for _ in range(int(line[1:]))]
            writer.write(told + b"-NOPERM no\r\n" if words[0] == b"SUBSCRIBE" else b"+OK\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        redis = store.connect(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with redis.pubsub() as pubsub:
            await pubsub.subscribe("c")
            with pytest.raises(NoPermissionError):
                await heard(pubsub)
        await redis.aclose()


async def _word(reader: asyncio.StreamReader) -> bytes:
    size = int((await reader.readline())[1:])
    return (await reader.readexactly(size + 2))[:-2]
