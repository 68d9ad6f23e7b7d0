"""A server that is set up well, for the doctor."""

from collections.abc import Iterator

import pytest

from tests.support.driver import Driver
from tests.support.servers import Server
from tests.tokenfleet.doctoring import running


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("good")) as server:
        yield server


@pytest.fixture
def driver(good: Server) -> Iterator[Driver]:
    """On the well set-up server, as it was before each test."""
    with good.client() as client:
        client.flushall()
        yield Driver(client)
