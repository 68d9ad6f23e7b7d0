"""A worker whose model makes vectors."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.fleet import Fleet
from protocol.states import State
from tests.vllm.roles import DUMMY
from tests.vllm.site import Plan, Site, Staff

pytestmark = pytest.mark.vllm

MODEL = "vectors"


@pytest.fixture(scope="module")
def embedder(site: Site, tiny_folder: Path) -> Iterator[Staff]:
    flags = [*DUMMY, "--runner", "pooling", "--convert", "embed", "--max-model-len", "512"]
    with site.worker(Plan(MODEL, MODEL, tiny_folder, 1, flags=flags)) as worker:
        yield worker


async def test_vectors_of_several_texts(fleet: Fleet, embedder: Staff) -> None:
    job = await fleet.submit(model=MODEL, input=["one", "another"])
    outcome = await job.result(30)
    assert outcome.state is State.COMPLETED, outcome
    assert outcome.body
    first, second = (item["embedding"] for item in outcome.body["data"])
    assert len(first) == len(second) > 1
    assert first != second
    assert outcome.usage["prompt_tokens"] == len("one" + "another")


async def test_a_chat_is_refused_and_the_engine_lives(fleet: Fleet, embedder: Staff) -> None:
    job = await fleet.submit(model=MODEL, messages=[{"role": "user", "content": "Hello"}])
    outcome = await job.result(30)
    assert outcome.state is State.FAILED
    assert outcome.status_code in (400, 404)
    again = await fleet.submit(model=MODEL, input="one")
    assert (await again.result(30)).state is State.COMPLETED
