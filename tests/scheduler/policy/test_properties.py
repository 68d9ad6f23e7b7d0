"""What holds of every round."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.prefix import PREFIX_CHARS
from scheduler.policy.decision import Decision, ParkReason
from scheduler.policy.registry import POLICIES
from scheduler.policy.view import FleetView
from tests.scheduler.policy import build
from tests.scheduler.policy.build import NOW_MS, REFUSING, choose, spec, views, weighed, worker

policies = st.sampled_from(sorted(POLICIES))


def decided(view: FleetView, policy: str, seed: int = 0) -> Decision:
    return choose(view.lanes, view.workers, policy, seed=seed, turn=view.turn, targets=REFUSING)


@given(views(), policies)
@settings(deadline=None)
def test_only_workers_that_may_take_a_job_get_it(view: FleetView, policy: str) -> None:
    jobs = {job.ref: job for lane in view.lanes for job in lane}
    workers = {worker.id: worker for worker in view.workers}
    given_to: Counter[str] = Counter()
    alone: set[str] = set()
    for assignment in decided(view, policy).assignments:
        job, worker = jobs.pop(assignment.ref), workers[assignment.worker]  # pop: no job twice
        held = worker.held + given_to[worker.id]
        assert worker.active
        assert not worker.models or job.spec.model in worker.models
        assert not worker.solo
        assert worker.id not in alone
        assert held < worker.slots
        assert not worker.report.kv_total_tokens or job.tokens <= worker.report.kv_total_tokens
        if job.strikes >= 2:
            assert held == 0
            alone.add(worker.id)
        given_to[worker.id] += 1


@given(views(), policies, st.integers(0, 3))
@settings(deadline=None)
def test_same_view_time_and_seed_same_decision(view: FleetView, policy: str, seed: int) -> None:
    assert decided(view, policy, seed) == decided(view, policy, seed)


@given(views(), policies)
@settings(deadline=None)
def test_only_offline_lanes_are_held_and_shortly_and_never_beside_an_idle_worker(view: FleetView, policy: str) -> None:
    decision = decided(view, policy)
    for lane in view.lanes:
        until = decision.held.get(lane[0].priority)
        if until is None:
            continue
        assert not lane[0].priority.online
        assert NOW_MS < until <= min(job.submitted_ms for job in lane) + 200
        assert not {a.ref for a in decision.assignments} & {job.ref for job in lane if job.strikes < 2}
        idle = [w for w in view.workers if w.active and w.held == 0]
        assert not idle or any(job.strikes >= 2 for other in view.lanes for job in other)
    moments = [*decision.held.values(), *([decision.later_ms] if decision.later_ms is not None else [])]
    assert decision.wake_at_ms == min(moments, default=None)
    assert decision.later_ms is None or decision.later_ms > NOW_MS


@given(views(), policies)
@settings(deadline=None)
def test_only_the_predictive_policy_holds_back_or_refuses(view: FleetView, policy: str) -> None:
    decision = decided(view, policy)
    refused = {refusal.ref for refusal in decision.refusals}
    assert not refused & {a.ref for a in decision.assignments}
    assert not refused & {park.ref for park in decision.park}
    assert all(refusal.priority.online for refusal in decision.refusals)
    if policy != "predictive":
        assert not refused
        assert decision.later_ms is None


@given(views(), policies)
@settings(deadline=None)
def test_only_jobs_that_no_active_worker_can_ever_take_are_parked_and_late_ones(view: FleetView, policy: str) -> None:
    jobs = {job.ref: job for lane in view.lanes for job in lane}
    decision = decided(view, policy)
    for park in decision.park:
        job = jobs[park.ref]
        if park.reason is ParkReason.LATE:
            assert policy == "predictive"
            assert job.priority.online
            assert not job.begun
            continue
        assert park.reason is ParkReason.TOO_LARGE
        serving = [w for w in view.workers if w.active and (not w.models or job.spec.model in w.models)]
        assert serving
        assert all(0 < worker.report.kv_total_tokens < job.tokens for worker in serving)
    assert not {park.ref for park in decision.park} & {a.ref for a in decision.assignments}


@given(views(), policies.filter(lambda name: name not in ("load-score", "predictive")))
@settings(deadline=None)
def test_no_room_is_left_beside_a_job_that_could_use_it(view: FleetView, policy: str) -> None:
    decision = decided(view, policy)
    moved = {a.ref for a in decision.assignments} | {park.ref for park in decision.park}
    taken = Counter(a.worker for a in decision.assignments)
    struck = any(job.strikes >= 2 for lane in view.lanes for job in lane)
    for job in (job for lane in view.lanes if lane[0].priority not in decision.held for job in lane):
        if job.ref not in moved and not struck:
            for worker in view.workers:
                idle = worker.active and not worker.solo and worker.held + taken[worker.id] == 0
                serves = not worker.models or job.spec.model in worker.models
                assert not idle or not serves or 0 < worker.report.kv_total_tokens < job.tokens


@given(
    prompt=st.integers(1, 20_000),
    blocks=st.integers(1, 8),
    held_blocks=st.integers(0, 8),
    warm_load=st.integers(0, 60_000),
    cold_load=st.integers(0, 60_000),
)
def test_a_prefix_match_draws_a_job_to_its_holder_but_not_beyond_what_it_saves(
    prompt: int, blocks: int, held_blocks: int, warm_load: int, cold_load: int
) -> None:
    names = tuple(f"{n}" for n in range(blocks))
    waiting = build.job("t:1", of=spec(prompt, 10, names))
    warm = worker("warm", slots=1, prefixes=names[:held_blocks], pending_prefill_tokens=warm_load)
    cold = worker("cold", slots=1, pending_prefill_tokens=cold_load)
    (chosen,) = choose(((waiting,),), (warm, cold)).assignments
    shared = min(blocks, held_blocks)
    saved = prompt - weighed(warm).uncached_tokens(waiting)
    assert saved == (min(prompt - 1, PREFIX_CHARS[shared - 1] // 4) if shared else 0)
    if warm_load - cold_load != 2 * saved:
        assert chosen.worker == ("warm" if warm_load - cold_load < 2 * saved else "cold")
        assert chosen.prompt_tokens == prompt - (saved if chosen.worker == "warm" else 0)
