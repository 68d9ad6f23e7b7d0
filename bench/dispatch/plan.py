"""What is run: the loads that all policies are compared on, and the scenes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from bench.dispatch import scenes
from bench.dispatch.bound import pooled_lru
from bench.dispatch.cases import BASELINES, DEFAULT, NO_GUARD, Case, run
from tokenfleet.simulate.summary import Summary

RIVALS = ("least-requests", "kv-cost")


@dataclass(frozen=True, slots=True)
class Plan:
    """All cases of one run of the benchmark.

    Attributes:
        steps: of the bisection for the highest load.
        death: 0.7 of the highest load that is carried without the worker that dies: three carry ×10.5.
        died_s: when it dies.
    """

    azure_16: Case
    azure_4: Case
    mooncake_4: Case
    mooncake_16: Case
    servegen_8: Case
    others: tuple[Case, ...]
    load: Case
    steps: int
    unequal: Case
    mixed: Case
    death: Case
    died_s: float

    @property
    def compared(self) -> list[Case]:
        """Those that all policies run, by trace."""
        named = (self.azure_16, self.azure_4, self.mooncake_4, self.mooncake_16, self.servegen_8)
        return sorted([*named, *self.others], key=lambda case: (case.trace, case.workers, case.scale))

    @property
    def stale(self) -> tuple[Case, ...]:
        """Those that are run with old reports too."""
        return self.azure_16, self.azure_4, self.mooncake_4, self.servegen_8

    def summaries(self) -> dict[str, Callable[[], Summary]]:
        """Runs, by a name that `Results` knows."""
        tasks: dict[str, Callable[[], Summary]] = {}
        for case in self.compared:
            tasks |= {of(case, policy): partial(run, case, policy) for policy in (DEFAULT, *BASELINES)}
        for case in self.stale:
            tasks[rare(case)] = partial(scenes.with_reports, case, 1_000.0, 0.0)
            tasks[late(case)] = partial(scenes.with_reports, case, 50.0, 1_000.0)
        tasks |= {of(self.unequal, policy): partial(run, self.unequal, policy) for policy in (DEFAULT, *RIVALS)}
        tasks[of(self.mixed, DEFAULT)] = partial(run, self.mixed)
        for policy, kind in product((DEFAULT, NO_GUARD), scenes.OFFLINE):
            tasks[beside(self.mixed, policy, kind)] = partial(scenes.beside_offline, self.mixed, policy, kind)
        return tasks

    def figures(self) -> dict[str, Callable[[], float]]:
        """Single figures, likewise; the longest first."""
        tasks: dict[str, Callable[[], float]] = {
            highest(policy): partial(scenes.highest_load, self.load, policy, self.steps)
            for policy in (*RIVALS, DEFAULT)
        }
        return tasks | {
            FEW: scenes.few_beside_crowd,
            DEATH: partial(scenes.back_after_death, self.death, self.died_s),
            WAIT: partial(scenes.waits_ms, replace(self.azure_4, scale=12.0)),
            BOUND: partial(bound, self.mooncake_16),
        }


FEW, DEATH, WAIT, BOUND = "ten beside 50,000", "a death", "waits", "pooled LRU"


def of(case: Case, policy: str) -> str:
    """A policy on a case."""
    return f"{case.name}, {policy}"


def rare(case: Case) -> str:
    """The default with a report each second."""
    return f"{case.name}, a report each second"


def late(case: Case) -> str:
    """The default with reports that come a second late."""
    return f"{case.name}, reports a second late"


def beside(case: Case, policy: str, kind: str = "batch") -> str:
    """A policy with offline work of a kind beside."""
    return f"{case.name}, {policy} with offline work ({kind})"


def highest(policy: str) -> str:
    """The highest load that a policy carries."""
    return f"highest load, {policy}"


def bound(case: Case) -> float:
    """What prefix hits could reach."""
    specs = case.specs()
    return pooled_lru(case.requests(), sum(spec.kv_tokens for spec in specs), specs[0].block_tokens)


FULL = Plan(
    azure_16=Case("azure", 52, 16),
    azure_4=Case("azure", 14, 4),
    mooncake_4=Case("mooncake", 1.1, 4),
    mooncake_16=Case("mooncake", 3.8, 16),
    servegen_8=Case("servegen", 105, 8),
    others=(
        Case("azure", 12, 4),
        Case("azure", 48, 16),
        Case("mooncake", 0.95, 4),
        Case("servegen", 90, 8),
    ),
    load=Case("mooncake", 1.0, 4),
    steps=6,
    unequal=Case("azure", 9, 4, slow=2),
    mixed=Case("azure", 6, 4, rows=10_000),
    death=Case("azure", 7.35, 4),
    died_s=60.0,
)
"""Within half an hour on two cores."""
QUICK = Plan(
    azure_16=Case("azure", 52, 16, rows=5_000),
    azure_4=Case("azure", 14, 4, rows=3_000),
    mooncake_4=Case("mooncake", 1.1, 4, rows=1_000),
    mooncake_16=Case("mooncake", 3.8, 16, rows=1_500),
    servegen_8=Case("servegen", 105, 8, rows=6_000),
    others=(),
    load=Case("mooncake", 1.0, 4, rows=1_000),
    steps=3,
    unequal=Case("azure", 9, 4, slow=2, rows=3_000),
    mixed=Case("azure", 6, 4, rows=1_000),
    death=Case("azure", 7.35, 4),
    died_s=30.0,
)
"""The traces' beginnings, within minutes."""
