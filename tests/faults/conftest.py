"""One parent for all processes of a session, one stage for each fault."""

from collections.abc import Iterator

import pytest

from tests.support.nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as parent:
        yield parent
