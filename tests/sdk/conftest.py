"""One fleet of real processes for both of OpenAI's clients."""

import asyncio
from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.sdk.front import ASLEEP, MODEL, START_S, Front, front_of
from tests.support.waiting import eventually


@pytest.fixture(scope="session")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with front_of(tmp_path_factory.mktemp("sdk")) as made, made.client() as client:

        def served() -> bool:
            return {model.id for model in client.models.list()} == {MODEL, ASLEEP}

        asyncio.run(eventually(served, START_S))
        yield made


@pytest.fixture
def sdk(front: Front) -> Iterator[OpenAI]:
    with front.client() as client:
        yield client
