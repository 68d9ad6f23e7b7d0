"""More than the fleet can carry, and nobody is refused: those that can still be served well are."""

from dataclasses import replace

from scheduler.policy.registry import POLICIES
from tests.simulate.build import TARGETS, ran, request
from tokenfleet.simulate.engine import WorkerSpec
from tokenfleet.simulate.generated import SHAPES, generate
from tokenfleet.simulate.scenario import Scenario
from tokenfleet.simulate.summary import Summary, summary
from tokenfleet.simulate.traces import Trace

TRACE = Trace("azure", tuple(generate(replace(SHAPES["azure"], rows=1_500), seed=0)))
WORKERS = [WorkerSpec("w1"), WorkerSpec("w2")]


def served(policy: str, scale: float) -> Summary:
    """All requests end, however late; nobody is refused."""
    found = summary(ran(Scenario(TRACE.requests(scale), WORKERS, POLICIES[policy], TARGETS)), TARGETS)
    assert (found.unfinished, found.refused) == (0, 0)
    return found


def test_the_share_that_is_served_well_falls_with_the_load_and_no_further() -> None:
    twice = served("predictive", 12.0).goodput
    assert twice > 0.6
    assert twice > 5 * served("least-requests", 12.0).goodput
    assert served("predictive", 18.0).goodput > 0.4


def test_no_worker_idles_while_a_burst_waits() -> None:
    """All of it is late after half a second: what is put off comes back as soon as there is room."""
    burst = [request(number, prompt_tokens=2_000, output_tokens=60) for number in range(600)]
    took = {
        name: summary(ran(Scenario(burst, WORKERS, POLICIES[name], TARGETS)), TARGETS).seconds
        for name in ("predictive", "least-requests")
    }
    assert took["predictive"] < 2.5 * took["least-requests"]
