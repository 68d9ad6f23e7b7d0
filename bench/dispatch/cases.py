"""A policy on a trace at a load: what all comparisons are made of."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from protocol.states import Priority
from scheduler.policy.order import Targets
from scheduler.policy.policy import Fleet, Policy
from scheduler.policy.predictive import Predictive
from scheduler.policy.registry import POLICIES
from scheduler.policy.view import JobView
from scheduler.policy.worker import Worker
from tokenfleet.simulate.engine import WorkerSpec
from tokenfleet.simulate.job import Request
from tokenfleet.simulate.scenario import Scenario
from tokenfleet.simulate.summary import Summary, summary
from tokenfleet.simulate.traces import Trace, load
from tokenfleet.simulate.world import World

DEFAULT = "predictive"
NO_GUARD = "naive mixing"
BASELINES = tuple(name for name in POLICIES if name != DEFAULT)
TARGETS = Targets(refuse=frozenset({Priority.HIGH}))
"""The default policy may refuse online jobs; no baseline ever does."""


class NaiveMixing(Predictive):
    """The default, without what keeps offline work from slowing online streams down."""

    def holds(self, job: JobView, worker: Worker, fleet: Fleet) -> bool:
        """As the default, but for online jobs only."""
        return job.priority.online and super().holds(job, worker, fleet)


_POLICIES: dict[str, Policy] = POLICIES | {NO_GUARD: NaiveMixing()}


@dataclass(frozen=True, slots=True)
class Case:
    """A trace at a load on so many workers.

    Attributes:
        slow: so many of the workers run at half speed.
        rows: only so many of the trace's first ones; 0 for all.
    """

    trace: str
    scale: float
    workers: int
    slow: int = 0
    rows: int = 0

    @property
    def name(self) -> str:
        """As tables show it."""
        return f"{self.trace} ×{self.scale:g} on {self.workers}"

    def requests(self) -> list[Request]:
        """Those of the trace at this load."""
        return trace_of(self.trace).requests(self.scale)[: self.rows or None]

    def specs(self) -> list[WorkerSpec]:
        """The workers; the slow ones come last."""
        block_tokens = trace_of(self.trace).block_tokens
        slowness = [1.0] * (self.workers - self.slow) + [2.0] * self.slow
        return [WorkerSpec(f"w{n + 1}", slowness=slow, block_tokens=block_tokens) for n, slow in enumerate(slowness)]


@cache
def trace_of(name: str) -> Trace:
    """Each process reads a trace once."""
    return load(name)


def scenario(case: Case, policy: str, further: Iterable[Request] = ()) -> Scenario:
    """What a world runs: the case's requests, and further ones."""
    return Scenario([*case.requests(), *further], case.specs(), _POLICIES[policy], TARGETS)


def run(case: Case, policy: str = DEFAULT) -> Summary:
    """One policy on one case."""
    return outcome_of(scenario(case, policy))


def outcome_of(what: Scenario) -> Summary:
    """Run it and sum it up."""
    world = World(what)
    world.run()
    return summary(world, what.targets)
