"""The unmodified npm package `openai` against the same processes as its twin."""

import pytest

from tests.sdk.front import MODEL, Front
from tests.sdk.npm import run_npm

pytestmark = pytest.mark.sdk


@pytest.mark.parametrize("name", ["chat.test.mjs", "errors.test.mjs"])
def test_the_npm_package(front: Front, name: str) -> None:
    run_npm(name, front, MODEL)
