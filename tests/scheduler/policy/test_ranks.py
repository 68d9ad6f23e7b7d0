"""The baselines' ranks by the p99 of the first token, azure conv ×12 on four engines: so none is weakened.

A pilot with another model of the engine found, in ms: load score 755 with reports 100 ms old and 2,654 with such of
1 s, power of two 322, round robin 299, least requests 291, SGLang's 291, Dynamo's 212, LMetric 195. The default gives
some of its first tokens away, inside the target, for the steadiest streams.
"""

from dataclasses import replace

import pytest

from scheduler.policy.registry import POLICIES
from tests.scheduler.policy.build import TARGETS
from tokenfleet.simulate.engine import WorkerSpec
from tokenfleet.simulate.generated import SHAPES, generate
from tokenfleet.simulate.job import Request
from tokenfleet.simulate.scenario import Scenario
from tokenfleet.simulate.summary import Summary, summary
from tokenfleet.simulate.traces import Trace, load
from tokenfleet.simulate.world import World

SCALE, ENGINES, ROWS = 12.0, 4, 1_500
BLIND = ("round-robin", "least-requests", "power-of-two")
"""They look at jobs, not at what these ask for."""
WISE = ("kv-cost", "lmetric")
DEFAULT = "predictive"


def ran(requests: list[Request], policy: str, report_ms: float = 100.0) -> Summary:
    """All requests run to their end."""
    workers = [WorkerSpec(f"w{n}") for n in range(ENGINES)]
    world = World(Scenario(requests, workers, POLICIES[policy], report_ms=report_ms))
    world.run()
    found = summary(world, TARGETS)
    assert found.unfinished == found.refused == 0
    return found


def check(requests: list[Request]) -> dict[str, float]:
    found = {policy: ran(requests, policy) for policy in (*BLIND, *WISE, "load-score", DEFAULT)}
    p99 = {policy: one.first_ms.p99 for policy, one in found.items()}
    token_p99 = {policy: one.token_ms.p99 for policy, one in found.items()}
    assert max(p99[policy] for policy in WISE) < min(p99[policy] for policy in BLIND), p99
    assert p99["load-score"] > 1.25 * max(p99[policy] for policy in BLIND), p99
    assert p99[DEFAULT] < 1.1 * max(p99[policy] for policy in BLIND), p99
    # Differences below 0.005 are noise.
    assert found[DEFAULT].goodput >= max(one.goodput for one in found.values()) - 0.005
    assert min(token_p99, key=lambda policy: token_p99[policy]) == DEFAULT, token_p99
    return p99


def test_ranks_on_a_generated_trace() -> None:
    requests = Trace("azure", tuple(generate(replace(SHAPES["azure"], rows=ROWS), seed=0))).requests(SCALE)
    p99 = check(requests)
    # Nothing but prompts that are equal to nobody's: without a match SGLang's rule is the fewest requests.
    assert ran(requests, "cache-aware").first_ms.p99 == p99["least-requests"]
    # The older the reports, the more go to one worker before the next ones.
    assert ran(requests, "load-score", 1_000.0).first_ms.p99 > 2 * p99["load-score"]


def test_ranks_on_the_real_trace() -> None:
    trace = load("azure")
    if trace.missing:
        pytest.skip(trace.missing)
    check(replace(trace, rows=trace.rows[: 2 * ROWS]).requests(SCALE))
