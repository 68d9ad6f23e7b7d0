"""Servers and roles for tests of what takes over."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ha.roles import Cast, on_stage
from tests.support.replication import Group
from tests.support.servers import redis7_binary, valkey_binary


@pytest.fixture
def cast(tmp_path: Path) -> Iterator[Cast]:
    """Schedulers and workers as processes."""
    with on_stage(tmp_path) as cast:
        yield cast


@pytest.fixture(params=["valkey", "redis7"])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    """A primary, a replica and three sentinels, of each kind of server."""
    binary = valkey_binary() if request.param == "valkey" else redis7_binary()
    if binary is None:
        pytest.skip("no redis-server of version 7 or above on the path")
    own = Group(binary, tmp_path)
    try:
        own.start()
        yield own
    finally:
        own.stop()
