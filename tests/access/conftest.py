"""Guarded servers of both kinds, and certificates."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.access.certificates import ELSEWHERE, Certificates
from tests.access.fleet import guarded, roles
from tests.observe.conftest import caller, collector
from tests.support.servers import REQUIRE_REDIS7, Server, redis7_binary, redis7_is_required, valkey_binary

__all__ = ["caller", "collector"]


def real_binary(name: str) -> Path:
    """The server of that kind; skips where the machine has none and nobody demands one."""
    binary = valkey_binary() if name == "valkey" else redis7_binary()
    if binary is None and redis7_is_required():
        pytest.fail(f"{REQUIRE_REDIS7} is set, but there is no redis-server of version 7 or above")
    if binary is None:
        pytest.skip("no redis-server of version 7 or above on the path")
    return binary


@pytest.fixture(scope="session", params=["valkey", "redis7"])
def binary(request: pytest.FixtureRequest) -> Path:
    return real_binary(request.param)


@pytest.fixture
def guarded_server(binary: Path, tmp_path: Path) -> Iterator[Server]:
    """With the users of two tenants and one worker."""
    with guarded(binary, tmp_path, roles()) as server:
        yield server


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None and redis7_is_required():
        pytest.fail("openssl is required where redis-server is")
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on the path")
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.make("good")
    made.make("client")
    made.make("elsewhere", host=ELSEWHERE)
    made.make("expired", end="20200102")
    made.make("early", begin="20900101")
    made.make("foreign", ca="stranger")
    return made
