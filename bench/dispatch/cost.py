"""What a decision costs: rounds of `decide` on a fleet of idle workers, timed."""

import random
import statistics
import time

from bench.dispatch.cases import TARGETS
from protocol.messages import LoadReport
from protocol.states import Priority
from scheduler.policy.decide import decide
from scheduler.policy.prefix_map import PrefixMap
from scheduler.policy.registry import POLICIES
from scheduler.policy.view import FleetView, WorkerView
from scheduler.policy.window import Window
from tokenfleet.simulate.generated import SHAPES, generate
from tokenfleet.simulate.job import Request
from tokenfleet.simulate.lanes import Lane

ROUNDS = 60
REPORT = LoadReport(running=60, capacity=1024, step_tokens=8192, kv_used_tokens=80_000, kv_total_tokens=430_000)
SLOTS, HELD = 1024, 60


def decision_us(workers: int, queued: int) -> float:
    """Microseconds for each job that is given to a worker, with so many queued: median of the later half of rounds."""
    lane, names = _lane(queued), [f"w{n}" for n in range(workers)]
    # As the dispatcher has it: who holds which prefix is kept from round to round, not gathered from all workers.
    policy, chance, known = POLICIES["predictive"], random.Random(0), PrefixMap()
    views = tuple(
        WorkerView(name, name, active=True, slots=SLOTS, held=HELD, report=REPORT, sent=known.sent_to(name))
        for name in names
    )
    times = []
    for turn in range(ROUNDS):
        began = time.perf_counter()
        view = FleetView((lane.heads(),), views, turn, holders=known.holders)
        decision = decide(view, 0.0, chance, policy, TARGETS, Window())
        taken = lane.take(item.ref for item in decision.assignments)
        times.append((time.perf_counter() - began) / len(decision.assignments))
        # As many wait as before; who got a prefix is known from now on.
        jobs = {job.ref: job for head in view.lanes for job in head}
        for item in decision.assignments:
            known.assigned(item.worker, jobs[item.ref].spec.prefix, 0.0)
        for ref, entry in taken.items():
            lane.put_back(jobs[ref], entry)
    return statistics.median(times[ROUNDS // 2 :]) * 1e6


def _lane(queued: int) -> Lane:
    rows = list(generate(SHAPES["generated"], 0))
    block_tokens = SHAPES["generated"].block_tokens
    lane = Lane()
    for number in range(queued):
        row = rows[number % len(rows)]
        lane.add(
            Request(
                str(number),
                0.0,
                row.prompt_tokens,
                row.output_tokens,
                row.blocks,
                block_tokens,
                Priority.HIGH,
                f"t{number % 50}",
            ).view()
        )
    return lane
