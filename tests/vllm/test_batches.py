"""Batches whose rows have killed engines, on real vLLM: each such row gets its error line, and the engine lives."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.vllm_env.models import TINY
from tests.batches.commands import Shell
from tests.support.nursery import Nursery
from tests.vllm.site import Site, Staff

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as parent:
        yield parent


@pytest.fixture
def shell(nursery: Nursery, site: Site, tmp_path: Path) -> Shell:
    return Shell(nursery, site.server.url, tmp_path)


@pytest.mark.parametrize(
    ("name", "answered", "failed"),
    [("engine-killers", ["r1", "r3", "r4"], ["r2", "r5", "r6"]), ("long-prompt", ["r1", "r3"], ["r2"])],
)
async def test_rows_that_only_the_engine_can_judge(
    tiny: Staff, shell: Shell, name: str, answered: list[str], failed: list[str]
) -> None:
    engine = tiny.role.engine().core.pid
    ended = await shell.batch(name, "--model", TINY)
    assert ended.code == 3, ended.said
    assert (sorted(ended.out), sorted(ended.errors)) == (answered, failed)
    assert await shell.proven(name)
    assert tiny.role.engine().core.pid == engine


async def test_values_that_a_schema_refuses_never_reach_an_engine(tiny: Staff, shell: Shell) -> None:
    engine = tiny.role.engine().core.pid
    ended = await shell.batch("bad-values", "--model", TINY)
    assert ended.code == 2, ended.said
    assert [line for line, _, _ in ended.problems] == list(range(1, 10)), ended.said
    assert not ended.out
    assert not ended.errors
    assert tiny.role.engine().core.pid == engine
