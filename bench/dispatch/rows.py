"""The rows of the target table."""

from collections.abc import Mapping
from dataclasses import dataclass

from bench.dispatch.cases import BASELINES, DEFAULT, NO_GUARD, Case
from bench.dispatch.plan import BOUND, DEATH, FEW, WAIT, Plan, beside, highest, late, of, rare
from bench.report import Target
from tokenfleet.simulate.summary import Summary


@dataclass(frozen=True, slots=True)
class Results:
    """What all runs yielded, by their names in the plan."""

    plan: Plan
    summaries: Mapping[str, Summary]
    figures: Mapping[str, float]

    def goodput(self, case: Case, policy: str = DEFAULT) -> float:
        """Of one run."""
        return self.summaries[of(case, policy)].goodput

    def best_baseline(self, case: Case) -> str:
        """The baseline with the most goodput."""
        return max(BASELINES, key=lambda policy: self.goodput(case, policy))


def rows_of(results: Results) -> list[Target]:
    """All rows but those of the cost."""
    return [*_against_baselines(results), *_loads(results), *_prefixes(results), *_robust(results), *_offline(results)]


def _against_baselines(results: Results) -> list[Target]:
    plan = results.plan
    asked = [
        (plan.azure_16, "kv-cost", 0.35),
        (plan.azure_16, "least-requests", 0.35),
        (plan.azure_4, "kv-cost", 0.35),
        (plan.mooncake_4, "kv-cost", 0.5),
        (plan.servegen_8, results.best_baseline(plan.servegen_8), 0.3),
        (plan.unequal, "least-requests", 0.5),
    ]
    rows = [_misses_over(results, *one) for one in asked]
    least = min(results.goodput(case) - results.goodput(case, results.best_baseline(case)) for case in plan.compared)
    return [*rows, Target("goodput less the best baseline's, the least of all loads", least, -0.005, "higher")]


def _misses_over(results: Results, case: Case, policy: str, target: float) -> Target:
    least = 1 / results.summaries[of(case, policy)].requests
    ours, theirs = 1 - results.goodput(case), 1 - results.goodput(case, policy)
    kind = ", two at half speed" if case.slow else ""
    return Target(f"{case.name}{kind}: misses over those of {policy}", ours / max(theirs, least), target, "lower")


def _loads(results: Results) -> list[Target]:
    ours = results.figures[highest(DEFAULT)]
    return [
        Target(
            f"{results.plan.load.trace} on 4: highest load over that of {policy}",
            ours / results.figures[highest(policy)],
            target,
            "higher",
        )
        for policy, target in (("least-requests", 2.2), ("kv-cost", 1.2))
    ]


def _prefixes(results: Results) -> list[Target]:
    case = results.plan.mooncake_16
    hits = results.summaries[of(case, DEFAULT)].hits
    return [Target(f"{case.name}: prefix hits over the pooled LRU's", hits / results.figures[BOUND], 0.8, "higher")]


def _robust(results: Results) -> list[Target]:
    lost = max(
        results.goodput(case) - results.summaries[name(case)].goodput
        for case in results.plan.stale
        for name in (rare, late)
    )
    return [
        Target("reports 1 s old: goodput lost, the most of all loads", lost, 0.02, "lower"),
        Target("a tenant's ten jobs beside 50,000: within target", results.figures[FEW], 10, "higher"),
        Target("a worker killed: seconds from its lease's end", results.figures[DEATH], 5, "lower"),
        Target("online window: ms added at p50", results.figures[WAIT], 1, "lower"),
    ]


def _offline(results: Results) -> list[Target]:
    case = results.plan.mixed
    alone = results.summaries[of(case, DEFAULT)]
    guarded, naive = (results.summaries[beside(case, policy)] for policy in (DEFAULT, NO_GUARD))
    share, growth = guarded.offline_rate / naive.offline_rate, guarded.first_ms.p99 / alone.first_ms.p99
    return [
        Target(f"offline beside {case.name}: offline tokens over naive mixing's", share, 0.87, "higher"),
        Target(f"offline beside {case.name}: online p99 first token over alone", growth, 1.6, "lower"),
    ]
