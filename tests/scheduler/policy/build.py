"""Views for the policy tests: short to write, everything that a test does not name at rest."""

import random
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from protocol.messages import JobSpec, LoadReport
from protocol.states import Priority
from scheduler.policy.decide import decide
from scheduler.policy.decision import Decision
from scheduler.policy.order import Targets
from scheduler.policy.policy import Fleet
from scheduler.policy.registry import POLICIES
from scheduler.policy.view import ONLINE_ONLY, Arrival, FleetView, JobView, Lately, Unseen, WorkerView, work_ms
from scheduler.policy.window import Window
from scheduler.policy.worker import Worker

NOW_MS = 1_000_000_000.0
HIGH, MEDIUM, LOW = Priority
TARGETS = Targets()
REFUSING = Targets(refuse=frozenset({Priority.HIGH}))


def spec(prompt: int = 100, output: int = 100, prefix: tuple[str, ...] = (), model: str = "m") -> JobSpec:
    return JobSpec(model=model, endpoint="/v1/completions", prompt_tokens=prompt, output_tokens=output, prefix=prefix)


def job(ref: str, priority: Priority = HIGH, waited: float = 0, of: JobSpec | None = None, **fields: Any) -> JobView:
    return replace(JobView(ref, f"0:{ref}", priority, of or spec(), NOW_MS - waited), **fields)


def lane(
    priority: Priority, count: int, waited: float = 0, of: JobSpec | None = None, **fields: int
) -> tuple[JobView, ...]:
    return tuple(job(f"{priority}:{n}", priority, waited, of, **fields) for n in range(count))


def worker(
    name: str = "w",
    held: int = 0,
    slots: int = 8,
    *,
    active: bool = True,
    solo: bool = False,
    models: Collection[str] = (),
    prefixes: Collection[str] = (),
    sent: Collection[str] = (),
    speed: float = 1.0,
    **report: float,
) -> WorkerView:
    """Its report is as old as nothing: what it says is pending is still so."""
    prompt = int(report.pop("unseen_prompt", 0))
    jobs, kv = int(report.pop("unseen_jobs", prompt > 0)), int(report.pop("unseen_kv", 0))
    unseen = Unseen(jobs, prompt, kv, (Arrival(NOW_MS, prompt, work_ms(prompt, prompt)),) if prompt else ())
    loaded = LoadReport.model_validate({"capacity": slots, "running": held} | report)
    view = WorkerView(name, name, active, slots, held, solo, loaded, NOW_MS, unseen, speed=speed)
    return replace(view, models=frozenset(models), prefixes=frozenset(prefixes), sent=frozenset(sent))


def weighed(view: WorkerView, now_ms: float = NOW_MS) -> Worker:
    return Worker.of(view, now_ms)


def fleet(*workers: WorkerView, now_ms: float = NOW_MS, targets: Targets = TARGETS, turn: int = 0) -> Fleet:
    """What a policy sees of these workers."""
    return Fleet(now_ms, [weighed(view, now_ms) for view in workers], targets, turn=turn)


def choose(
    lanes: tuple[tuple[JobView, ...], ...],
    workers: tuple[WorkerView, ...],
    policy: str = "least-work",
    *,
    now_ms: float = NOW_MS,
    seed: int = 0,
    turn: int = 0,
    targets: Targets = TARGETS,
    lately: Lately = ONLINE_ONLY,
) -> Decision:
    view = FleetView(lanes, workers, turn, lately)
    return decide(view, now_ms, random.Random(seed), POLICIES[policy], targets, Window())


def refs(decision: Decision) -> list[str]:
    return [assignment.ref for assignment in decision.assignments]


@st.composite
def _jobs(draw: st.DrawFn, priority: Priority) -> tuple[JobView, ...]:
    count = draw(st.integers(0, 12))
    made = []
    for n in range(count):
        of = spec(
            draw(st.integers(0, 3_000)),
            draw(st.integers(1, 500)),
            draw(st.sampled_from([(), ("a",), ("a", "b"), ("c",)])),
            draw(st.sampled_from(["m", "m", "m", "adapter"])),
        )
        waited = draw(st.sampled_from([0, 5, 30, 150, 199, 200, 400, 70_000, 700_000]))
        left = draw(st.sampled_from([None, 100, 3_000, 10_000, 86_400_000]))
        made.append(
            job(
                f"{priority}:{n}",
                priority,
                waited,
                of,
                deadline_ms=0 if left is None else int(NOW_MS + left),
                strikes=draw(st.sampled_from([0, 0, 0, 1, 2])),
            )
        )
    return tuple(made)


@st.composite
def _workers(draw: st.DrawFn) -> tuple[WorkerView, ...]:
    made = []
    for n in range(draw(st.integers(0, 5))):
        slots = draw(st.integers(1, 6))
        held = draw(st.integers(0, slots))
        made.append(
            worker(
                f"w{n}",
                held,
                slots,
                active=draw(st.booleans()) or draw(st.booleans()),
                solo=held > 0 and draw(st.integers(0, 5)) == 0,
                models=draw(st.sampled_from([(), ("m",), ("m", "adapter"), ("other",)])),
                prefixes=draw(st.sampled_from([(), ("a",), ("a", "b"), ("b", "c")])),
                memory=draw(st.floats(0, 1)),
                waiting=draw(st.integers(0, 3)),
                slow_share=draw(st.sampled_from([0.0, 0.0, 0.5])),
                pending_prefill_tokens=draw(st.integers(0, 5_000)),
                kv_total_tokens=draw(st.sampled_from([0, 1_000, 2_000, 10_000])),
                kv_used_tokens=draw(st.integers(0, 10_000)),
            )
        )
    return tuple(made)


@st.composite
def views(draw: st.DrawFn) -> FleetView:
    lanes = tuple(draw(_jobs(priority)) for priority in Priority)
    return FleetView(tuple(lane for lane in lanes if lane), draw(_workers()), draw(st.integers(0, 20)))
