"""Each row of the fault matrix on real processes; `make faults` plays the same scenarios, and the slow ones."""

from pathlib import Path

import pytest

from tests.faults.matrix import Fault
from tests.faults.rows import ROWS
from tests.faults.stage import NotHere, Stage
from tests.support.nursery import Nursery

PLAYED = [row for row in ROWS if row.scenario and not row.slow]


@pytest.mark.parametrize("row", PLAYED, ids=lambda row: row.name)
async def test_fault(row: Fault, nursery: Nursery, tmp_path: Path) -> None:
    assert row.scenario
    try:
        async with Stage(nursery, tmp_path, row.server, row.extra) as stage:
            seen = await row.scenario(stage)
    except NotHere as reason:
        pytest.skip(str(reason))
    assert seen.what
