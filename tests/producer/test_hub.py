"""What a follower hears."""

import pytest

from producer import hub
from producer.hub import HELD_BYTES, HELD_MESSAGES, Subscription


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
