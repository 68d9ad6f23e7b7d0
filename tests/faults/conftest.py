"""One parent for all processes, and all chosen faults played: several at once, since they mostly wait."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import pytest

from tests.faults.matrix import Fault, Seen
from tests.faults.stage import Stage
from tests.support.nursery import Nursery

AT_ONCE = 4
End = Seen | Exception


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as parent:
        yield parent


@pytest.fixture(scope="session")
def ends(
    request: pytest.FixtureRequest, nursery: Nursery, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, End]:
    """What each scenario that this session runs saw or raised, by its fault's name."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    # Tests elsewhere may have a parameter of this name.
    params = [item.callspec.params.get("row") for item in items if "ends" in item.fixturenames]
    rows = [row for row in params if isinstance(row, Fault)]
    return asyncio.run(_play_all(rows, nursery, tmp_path_factory))


async def _play_all(rows: Sequence[Fault], nursery: Nursery, folders: pytest.TempPathFactory) -> Mapping[str, End]:
    turn = asyncio.Semaphore(AT_ONCE)

    async def play(row: Fault) -> End:
        assert row.scenario
        async with turn:
            try:
                async with Stage(nursery, folders.mktemp("stage"), row.server, row.extra) as stage:
                    return await row.scenario(stage)
            except Exception as error:  # noqa: BLE001 - the test of this fault raises it; the others go on
                return error

    played = await asyncio.gather(*(play(row) for row in rows))
    return {row.name: end for row, end in zip(rows, played, strict=True)}
