"""What comparisons of policies on plain traces do not show: limits, old reports, offline work, crowds, deaths."""

import math
from collections import defaultdict
from dataclasses import replace

from bench.dispatch.cases import DEFAULT, TARGETS, Case, outcome_of, run, scenario, trace_of
from protocol.states import Priority
from tokenfleet.simulate.generated import SHAPES, Shape, generate
from tokenfleet.simulate.job import Outcome, Request
from tokenfleet.simulate.summary import Summary, goodput
from tokenfleet.simulate.world import World

ENOUGH = 0.95
"""A fleet carries a load when this share of the requests meets its targets."""
CROWD, FEW = 50_000, 10
ENDLESS = 30_000
"""Offline requests: more than the fleet can do in the time."""
OFFLINE = {
    "batch": Shape(rows=ENDLESS, a_second=1.0, prompt=(300.0, 0.6), output=(300.0, 0.6), sharing=0.0),
    "like azure": replace(SHAPES["azure"], rows=ENDLESS),
}
"""Kinds of it: questions and answers of a few hundred tokens, as evaluations have; and mostly long prompts."""
PATIENT = replace(TARGETS, refuse=frozenset())
"""Nobody is refused."""
LATE_MS = 60_000.0
"""So long after the last one online requests may need to end."""
AFTER_MS = 60_000.0
"""So long a death is watched."""


def highest_load(case: Case, policy: str, steps: int) -> float:
    """The highest scale with enough goodput, by bisection; what the case names is where it begins."""
    low, high = case.scale / 4, case.scale * 2
    good = {low: run(replace(case, scale=low), policy).goodput, high: 0.0}
    while good[low] < ENOUGH:
        low, high = low / 2, low
        good[low] = run(replace(case, scale=low), policy).goodput
    for _ in range(steps):
        middle = math.sqrt(low * high)
        good[middle] = run(replace(case, scale=middle), policy).goodput
        low, high = (middle, high) if good[middle] >= ENOUGH else (low, middle)
    # Between the last two the goodput falls by little, about evenly.
    share = (good[low] - ENOUGH) / max(good[low] - good[high], 1e-9)
    return low + (high - low) * share


def with_reports(case: Case, every_ms: float, late_ms: float) -> Summary:
    """The default policy, with reports as rare and as old as that."""
    return outcome_of(replace(scenario(case, DEFAULT), report_ms=every_ms, late_ms=late_ms))


def beside_offline(case: Case, policy: str, kind: str = "batch") -> Summary:
    """The case with offline work that never runs out, until the online requests have ended; nobody is refused."""
    further = [
        Request(str(n), 0.0, row.prompt_tokens, row.output_tokens, priority=Priority.LOW, tenant="offline")
        for n, row in enumerate(generate(OFFLINE[kind], 0))
    ]
    mixed = scenario(case, policy, further)
    until_ms = max(one.at_ms for one in case.requests()) + LATE_MS
    return outcome_of(replace(mixed, targets=PATIENT, until_ms=until_ms, online_only=True))


def few_beside_crowd() -> int:
    """How many of a tenant's ten requests meet their targets while another's 50,000 wait before them."""
    rows = trace_of("azure").rows
    crowd = [
        Request(str(n), 0.0, row.prompt_tokens, row.output_tokens, tenant="crowd")
        for n, row in zip(range(CROWD), rows * (CROWD // len(rows) + 1), strict=False)
    ]
    few = [Request(str(n), 5_000.0 + 500.0 * n, 1_000, 200, tenant="few") for n in range(FEW)]
    what = scenario(Case("azure", 1, 4, rows=1), DEFAULT, [*few, *crowd])
    # The crowd stays, whatever it waits.
    world = World(replace(what, targets=PATIENT, until_ms=60_000.0))
    world.run()
    return sum(world.outcomes[one.ref].good(TARGETS) for one in few)


def back_after_death(case: Case, at_s: float, lease_s: float = 10.0) -> float:
    """Seconds from a dead worker's lease expiry until goodput is back, in bins of 1 s.

    It is back at the end of the last bin below `ENOUGH` times what the minute before the death had.
    """
    specs = case.specs()
    specs[-1] = replace(specs[-1], dies_ms=at_s * 1000)
    until_ms = (at_s + lease_s) * 1000 + AFTER_MS
    requests = [one for one in case.requests() if one.at_ms <= until_ms]
    world = World(replace(scenario(case, DEFAULT), workers=specs, requests=requests, lease_ms=lease_s * 1000))
    bins: defaultdict[int, list[Outcome]] = defaultdict(list)
    for outcome in world.run():
        bins[int(outcome.request.at_ms // 1000)].append(outcome)
    before = [one for second, ones in bins.items() if second < at_s for one in ones]
    expiry_s = at_s + lease_s
    low = [
        second
        for second, ones in bins.items()
        if second >= expiry_s and goodput(ones, TARGETS) < ENOUGH * goodput(before, TARGETS)
    ]
    return max(0.0, max(low, default=expiry_s - 1) + 1 - expiry_s)


def waits_ms(case: Case) -> float:
    """From arrival to dispatch at p50: what the window and the holding back add."""
    world = World(scenario(case, DEFAULT))
    waits = sorted(one.started_ms - one.request.at_ms for one in world.run() if one.started_ms is not None)
    return waits[len(waits) // 2]
