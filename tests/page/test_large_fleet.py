"""A hundred workers with ten thousand jobs, all of them shown: what an update costs, and what stays in memory."""

import pytest

from bench.page.__main__ import judge, measure

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("chromium", "axe")]
LOOKS = 40


async def test_an_update_is_cheap_memory_stays_flat_and_axe_finds_nothing() -> None:
    """A look each 0.2 s, in which ten seconds pass: so the series are full before memory is measured."""
    run = await measure(LOOKS, 0.2, open_jobs=True, step_ms=15_000)
    targets, _ = judge(run)
    assert run.faults == []
    assert len(run.task_ms) >= LOOKS
    assert [target for target in targets if not target.met] == []
