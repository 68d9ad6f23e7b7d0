"""TLS to sentinels and to the primary that they name: a failover is followed, and who is not trusted is told."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.fleet import Fleet
from protocol.call import run_sync
from protocol.settings import Settings
from protocol.states import State
from protocol.store import connect_sync
from tests.access.certificates import HOST, Certificates
from tests.access.conftest import real_binary
from tests.access.distrust import PING, both
from tests.journey.conftest import MODEL, scheduler, worker
from tests.support.replication import Group, Tls
from tests.support.waiting import eventually


@pytest.fixture
def group(certificates: Certificates, tmp_path: Path) -> Iterator[Group]:
    """A primary, a replica and three sentinels, which all ask for a client's certificate, also each other."""
    files = (("tls-cert-file", "pem"), ("tls-key-file", "key"))
    own = tuple((option, str(certificates.folder / f"good.{kind}")) for option, kind in files)
    tls = Tls(HOST, (*own, ("tls-ca-cert-file", str(certificates.pem("ca")))))
    made = Group(real_binary("redis7"), tmp_path, tls=tls)  # the packaged Valkey has no TLS
    try:
        made.start()
        yield made
    finally:
        made.stop()


def settings(group: Group, files: Certificates) -> Settings:
    own = files.pem("client"), files.key("client")
    return Settings(
        redis_url=group.url, redis_ca=files.pem("ca"), redis_cert=own[0], redis_key=own[1], redis_patience_s=10
    )


async def test_a_fleet_follows_a_failover_over_tls(group: Group, certificates: Certificates) -> None:
    given = settings(group, certificates)
    url = given.store_url
    async with scheduler(url), worker(url, "worker-1"), Fleet(settings=given) as fleet:
        await fleet.ready(MODEL, 20)
        before = await fleet.submit(model=MODEL, prompt="hello", stream=True, max_tokens=5)
        assert "".join([text async for text in before.text()]) == (await before.result(timeout=20)).text
        old = group.primary
        await asyncio.to_thread(group.sentinels[0].failover)
        await eventually(lambda: group.primary is not old, 10)
        after = await fleet.submit(model=MODEL, prompt="hello", stream=True, max_tokens=5)
        assert (await after.result(timeout=20)).state is State.COMPLETED
        # The answer of before the failover is there as well: the replica has copied it, over TLS too.
        assert (await before.result()).state is State.COMPLETED
    with connect_sync(url) as client:
        assert run_sync(client, PING)


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"redis_ca": None}, "TOKENFLEET_REDIS_CA"),
        ({"redis_cert": None, "redis_key": None}, "TOKENFLEET_REDIS_CERT"),
    ],
)
async def test_distrust_is_told_and_not_waited_out(
    group: Group, certificates: Certificates, changes: dict[str, None], hint: str
) -> None:
    """As if every sentinel were away, nobody would know why."""
    for error in await both(settings(group, certificates).model_copy(update=changes)):
        assert hint in error.hint
