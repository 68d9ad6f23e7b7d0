"""What is summed up is what happened."""

import pytest

from tests.simulate.build import PREDICTIVE, REFUSING, TARGETS, alone, ran, request, trace, trouble
from tokenfleet.simulate.engine import WorkerSpec
from tokenfleet.simulate.scenario import Scenario
from tokenfleet.simulate.summary import Percentiles, goodput, summary


def test_percentiles() -> None:
    assert Percentiles.of(range(1, 101)) == Percentiles(51, 100)
    assert Percentiles.of([]) == Percentiles()


def test_an_idle_fleet_meets_all_targets() -> None:
    world = alone([request(0), request(1, at_ms=1_000)], WorkerSpec("w"))
    found = summary(world, TARGETS)
    assert (found.requests, found.goodput, found.refused, found.unfinished) == (2, 1.0, 0, 0)
    assert 0 < found.utilisation["w"] < 0.5


def test_what_is_refused_is_missed_and_what_is_cancelled_does_not_count() -> None:
    world = ran(trouble().scenario(PREDICTIVE, REFUSING))
    outcomes = [one for one in world.outcomes.values() if one.request.priority.online]
    counted = [one for one in outcomes if not one.cancelled]
    found = summary(world, REFUSING)
    assert found.goodput == sum(one.good(REFUSING) for one in counted) / len(counted) == goodput(outcomes, REFUSING)
    assert found.refused == sum(one.refused for one in outcomes)
    assert found.cancelled > 0
    assert found.offline_tokens > 0


def test_hits_are_the_shared_beginnings() -> None:
    requests = trace(300).requests(0.2)
    found = summary(ran(Scenario(requests, [WorkerSpec("w", block_tokens=256)], PREDICTIVE)), TARGETS)
    seen: set[int] = set()
    shared = 0
    for one in requests:
        # At least one token of a prompt is computed.
        reusable = one.blocks[: (one.prompt_tokens - 1) // 256]
        shared += 256 * sum(block in seen for block in reusable)
        seen.update(one.blocks)
    assert found.hits == pytest.approx(shared / sum(one.prompt_tokens for one in requests), rel=0.02)
