"""What a client is told of a server that it must not trust."""

import pytest

from protocol import store
from protocol.call import Call, run_sync
from protocol.errors import NotTrusted, StoreUnavailable
from protocol.settings import Settings
from tests.support.waiting import eventually

PING = Call(("PING",), bool)


async def both(settings: Settings) -> list[NotTrusted]:
    """What the two kinds of connection are refused with."""
    told: list[NotTrusted] = []
    redis = store.connect(settings.store_url)
    with pytest.raises(NotTrusted) as refusal:
        await store.wait_until_up(redis, 5, lambda: None)
    told.append(refusal.value)
    await redis.aclose()

    async def second() -> NotTrusted | None:
        return refused(settings)

    word = await eventually(second, 20)
    assert word
    return [*told, word]


def refused(settings: Settings) -> NotTrusted | None:
    """None while the server's word and its end of the connection crossed ours: then nobody can tell why it ended."""
    with store.connect_sync(settings.store_url) as redis, pytest.raises((NotTrusted, StoreUnavailable)) as refusal:
        run_sync(redis, PING)
    return refusal.value if isinstance(refusal.value, NotTrusted) else None
