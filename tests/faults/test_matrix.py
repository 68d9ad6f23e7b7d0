"""Each row of the fault matrix on real processes; `make faults` plays the same scenarios, and the slow ones."""

import re
from collections.abc import Mapping

import pytest

from bench.faults.__main__ import met_by
from tests.faults.matrix import Fault, Seen
from tests.faults.rows import ROWS
from tests.faults.stage import NotHere
from tests.support.nursery import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text()
PLAYED = [row for row in ROWS if row.scenario and not row.slow]


@pytest.mark.parametrize("row", PLAYED, ids=lambda row: row.name)
def test_fault(row: Fault, ends: Mapping[str, Seen | Exception]) -> None:
    end = ends[row.name]
    if isinstance(end, NotHere):
        pytest.skip(str(end))
    if isinstance(end, Exception):
        raise end
    assert end.what


def test_each_fault_has_a_scenario_or_tests_that_exist() -> None:
    for row in ROWS:
        assert bool(row.scenario) != bool(row.tests), row.name
        for test in row.tests:
            path, _, name = test.partition("::")
            assert re.search(rf"def {name}\(", (ROOT / path).read_text()), test


def test_the_page_on_reliability_lists_each_fault() -> None:
    missing = [row.name for row in ROWS if f"| {row.name} | {row.expected} |" not in PAGE]
    assert not missing, missing


@pytest.mark.parametrize(
    ("status", "last", "met"),
    [
        (0, "3 passed in 1.20s", True),
        (0, "1 passed, 2 skipped in 1.20s", True),
        (0, "2 skipped in 0.10s", None),
        (1, "1 failed, 2 passed in 1.20s", False),
        (5, "no tests ran in 0.10s", False),
        (4, "ERROR: not found", False),
    ],
)
def test_tests_that_were_skipped_show_nothing(status: int, last: str, met: bool | None) -> None:
    assert met_by(status, last) is met


def test_each_promise_has_tests_that_exist() -> None:
    promises, _, _ = PAGE.partition("## Streams")
    cited = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", promises)
    missing = [name for path, name in cited if not re.search(rf"def {name}\(", (ROOT / path).read_text())]
    assert len(cited) > 20
    assert not missing, missing
