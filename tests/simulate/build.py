"""Scenarios that the tests of the simulator share: small, crowded, and with all kinds of trouble."""

from dataclasses import replace

from protocol.states import Priority
from scheduler.policy.order import Targets
from scheduler.policy.policy import Policy
from scheduler.policy.registry import POLICIES
from tokenfleet.simulate.engine import WorkerSpec
from tokenfleet.simulate.generated import SHAPES, generate
from tokenfleet.simulate.job import Request
from tokenfleet.simulate.plan import Plan
from tokenfleet.simulate.scenario import Scenario
from tokenfleet.simulate.traces import Trace
from tokenfleet.simulate.world import World

TARGETS = Targets()
REFUSING = Targets(refuse=frozenset({Priority.HIGH}))
PREDICTIVE: Policy = POLICIES["predictive"]


def trace(rows: int = 400, seed: int = 0) -> Trace:
    """A generated one, shortened."""
    shape = replace(SHAPES["generated"], rows=rows)
    return Trace("generated", tuple(generate(shape, seed)), shape.block_tokens)


def trouble(rows: int = 400, seed: int = 0) -> Plan:
    """Cancels, a worker that dies, one that comes late, a slow one, and offline work."""
    return Plan(
        trace(rows, seed),
        scale=8.0,
        workers=3,
        slow=[(1, 0.5)],
        kills={"w1": 2.0},
        joins={"w9": 3.0},
        cancel_share=0.1,
        offline=20,
        seed=seed,
    )


def ran(scenario: Scenario) -> World:
    """A world that has run."""
    world = World(scenario)
    world.run()
    return world


def request(number: int, at_ms: float = 0.0, prompt_tokens: int = 100, output_tokens: int = 10) -> Request:
    """One without a prefix."""
    return Request(str(number), at_ms, prompt_tokens, output_tokens)


def alone(requests: list[Request], spec: WorkerSpec) -> World:
    """A world with one worker that has run."""
    return ran(Scenario(requests, [spec], PREDICTIVE, TARGETS))
