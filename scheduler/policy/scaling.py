"""When a standby worker is promoted, when it is put back, and how many workers a shard would like: pure.

Promoted: the wait of an online job is over its target for 2 s. Put back: one worker fewer would have been enough, with
ease (`demand.enough`: half the target), for 60 s. In between nothing changes, and after each change nothing does for as
long as a promotion takes. The number that is published rises at once and falls when it was lower for 60 s.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from scheduler.policy.demand import Demand, Kind, decode_demand, enough, kind_of, step_ms, target_ms
from scheduler.policy.order import Targets
from scheduler.policy.view import REFERENCE, FleetView, JobView, lone_prefill_ms
from scheduler.policy.worker import Worker

RATE_MS = 10_000.0
"""Demand is averaged over so long."""
PATIENCE_MS = 120_000.0
"""A promotion that takes longer has failed."""
TRIED = 16
"""Workers that could not be promoted are asked last, so many of them."""
TYPICAL_TOKENS = 512
MOST = 1_024
"""More workers than this are never wished for."""
SPREAD = 0.1
"""How fast the typical prompt follows those that come."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast it reacts.

    Attributes:
        every_ms: from look to look.
        over_ms: so long the wait is over its target before a worker is promoted.
        calm_ms: so long one worker fewer would have been enough before one is put back, or fewer are wished for.
        promotion_ms: how long a promotion takes, until one was seen.
    """

    every_ms: float = 1_000.0
    over_ms: float = 2_000.0
    calm_ms: float = 60_000.0
    promotion_ms: float = 5_000.0


PACE = Pace()


@dataclass(frozen=True, slots=True)
class Standby:
    """A worker that stands by; `warm` or asleep."""

    id: str
    warm: bool


@dataclass(frozen=True, slots=True)
class Sight:
    """What is looked at.

    Attributes:
        view: the lanes' heads and the workers.
        depths: how many jobs each lane of the view holds in all.
        standbys: those that could be promoted.
        reserves: active workers that were started to stand by.
        started: how many jobs were given to workers since the last look.
        sent_tokens: what must be computed of their prompts.
        online_tokens: prompts of the online jobs that were given since then.
        turned_away: online jobs that were refused or put off since then, as their targets could not be met.
    """

    view: FleetView
    depths: Sequence[int] = ()
    standbys: Sequence[Standby] = ()
    reserves: Sequence[str] = ()
    started: int = 0
    sent_tokens: int = 0
    online_tokens: Sequence[int] = ()
    turned_away: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """What is remembered from look to look. Times in ms.

    Attributes:
        looked_ms: the last look; None before the first.
        rate: prompt tokens that went to workers, each ms.
        starts: jobs that went to workers, each ms.
        decode: reference engines that streams kept busy.
        held: jobs on the workers, and online jobs that waited for a place there.
        typical_tokens: the prompt of an online job.
        over_ms, calm_ms: since when the wait is over its target, and one worker fewer would be enough.
        changed_ms: the last change.
        promoting: whom, since `changed_ms`; empty when nobody is.
        promotion_ms: how long a promotion takes; None until one was seen.
        tried: workers that could not be promoted, the last one last.
        wanted: how many workers are wished for.
        lower, lower_ms: the highest wish below that, and since when all were below.
    """

    looked_ms: float | None = None
    rate: float = 0.0
    starts: float = 0.0
    decode: float = 0.0
    held: float = 0.0
    typical_tokens: float = TYPICAL_TOKENS
    over_ms: float | None = None
    calm_ms: float | None = None
    changed_ms: float = 0.0
    promoting: str = ""
    promotion_ms: float | None = None
    tried: tuple[str, ...] = ()
    wanted: int = 0
    lower: int = 0
    lower_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now: nothing, or one change.

    Attributes:
        wanted: how many active workers would be enough with ease.
        wait_ms: the predicted wait of an online job; infinite while nobody takes one.
        promote, rest: a worker's id; empty for none.
    """

    wanted: int
    wait_ms: float
    promote: str = ""
    rest: str = ""


@dataclass(frozen=True, slots=True)
class _Scene:
    """A look, worked out."""

    active: int
    demand: Demand
    kind: Kind
    wait_ms: float
    target_ms: float = field(default=0.0)
    turned_away: int = 0

    @property
    def over(self) -> bool:
        return self.turned_away > 0 or self.wait_ms > self.target_ms


def look(sight: Sight, now_ms: float, state: State, targets: Targets, pace: Pace = PACE) -> tuple[Plan, State]:
    """Decide; at most one change."""
    workers = [Worker.of(worker, now_ms) for worker in sight.view.workers if worker.active and not worker.solo]
    state = _averaged(_followed(sight, now_ms, state), sight, workers, now_ms)
    scene = _scene(sight, workers, now_ms, state, targets)
    state = _timed(scene, now_ms, state, targets)
    state = _wished(scene, now_ms, state, targets, pace)
    promote = rest = ""
    promotion_ms = pace.promotion_ms if state.promotion_ms is None else state.promotion_ms
    if not state.promoting and now_ms - state.changed_ms >= promotion_ms:
        if _since(state.over_ms, now_ms) >= pace.over_ms:
            promote = _to_promote(sight, state)
        elif _since(state.calm_ms, now_ms) >= pace.calm_ms and scene.active > 1:
            rest = _to_rest(sight)
    if promote or rest:
        state = replace(state, changed_ms=now_ms, promoting=promote, over_ms=None, calm_ms=None)
    return Plan(state.wanted, scene.wait_ms, promote, rest), state


def refused(state: State) -> State:
    """The worker that was to be promoted says no."""
    if not state.promoting:
        return state
    return replace(state, promoting="", tried=(*state.tried, state.promoting)[-TRIED:])


def _followed(sight: Sight, now_ms: float, state: State) -> State:
    """How far the promotion under way is."""
    if state.looked_ms is None:
        # Another may have changed something just before it lost the lead.
        return replace(state, changed_ms=now_ms)
    if not state.promoting:
        return state
    took_ms = now_ms - state.changed_ms
    worker = next((worker for worker in sight.view.workers if worker.id == state.promoting), None)
    if worker is None:
        return replace(state, promoting="")
    if worker.active:
        known = took_ms if state.promotion_ms is None else (state.promotion_ms + took_ms) / 2
        return replace(state, promoting="", promotion_ms=known)
    return refused(state) if took_ms > PATIENCE_MS else state


def _averaged(state: State, sight: Sight, workers: Sequence[Worker], now_ms: float) -> State:
    """Demand over the last seconds: a burst that is over before anybody could help is no reason to grow."""
    elapsed_ms = max(0.0, now_ms - (now_ms if state.looked_ms is None else state.looked_ms))
    share = 1 - math.exp(-elapsed_ms / RATE_MS)
    typical = state.typical_tokens
    for tokens in sight.online_tokens:
        typical += SPREAD * (tokens - typical)
    rate, starts = state.rate, state.starts
    if elapsed_ms:
        rate += share * (sight.sent_tokens / elapsed_ms - rate)
        starts += share * (sight.started / elapsed_ms - starts)
    decode = decode_demand(workers, REFERENCE.token_ms * rate)
    held = sum(worker.held for worker in workers) + len(_online(sight))
    return replace(
        state,
        looked_ms=now_ms,
        rate=rate,
        starts=starts,
        decode=state.decode + share * (decode - state.decode),
        held=state.held + share * (held - state.held),
        typical_tokens=typical,
    )


def _online(sight: Sight) -> list[JobView]:
    return [job for lane in sight.view.lanes for job in lane if job.priority.online]


def _scene(sight: Sight, workers: Sequence[Worker], now_ms: float, state: State, targets: Targets) -> _Scene:
    typical = round(state.typical_tokens)
    waiting_tokens = sum(job.spec.prompt_tokens for job in _online(sight))
    depths = sight.depths or [len(lane) for lane in sight.view.lanes]
    work_ms = {"medium": 0.0, "low": 0.0}
    for lane, depth in zip(sight.view.lanes, depths, strict=True):
        if lane and not lane[0].priority.online:
            work_ms[lane[0].priority] += depth * sum(map(_work_ms, lane)) / len(lane)
    demand = Demand(
        typical_tokens=typical,
        prefill=REFERENCE.token_ms * state.rate,
        decode=state.decode,
        pending_tokens=sum(worker.pending_tokens for worker in workers) + waiting_tokens,
        held=state.held,
        medium_ms=work_ms["medium"],
        low_ms=work_ms["low"],
    )
    kind = kind_of(workers)
    step_now_ms = step_ms(demand, kind, len(workers))
    if math.isfinite(step_now_ms):
        demand = replace(demand, step_ms=step_now_ms)
    wait_ms = _wait_ms(sight, workers, now_ms, typical, waiting_tokens)
    return _Scene(len(workers), demand, kind, wait_ms, target_ms(demand, kind, targets), sight.turned_away)


def _work_ms(job: JobView) -> float:
    """What a job takes of a reference engine that is busy: its prompt, then a token in each of many full steps."""
    context = job.spec.prompt_tokens + job.spec.output_tokens / 2
    return job.prefill_ms + job.spec.output_tokens * (REFERENCE.token_ms + REFERENCE.decode_kv_ms * context)


def _wait_ms(sight: Sight, workers: Sequence[Worker], now_ms: float, typical_tokens: int, waiting_tokens: int) -> float:
    """What an online job that came now would wait for its first token, or what one has waited already."""
    jobs = [job for lane in sight.view.lanes for job in lane]
    if not workers:
        return math.inf if jobs else 0.0
    waited_ms = max((now_ms - job.submitted_ms for job in _online(sight)), default=0.0)
    own_ms, share = lone_prefill_ms(typical_tokens), waiting_tokens / len(workers)
    soonest = min(
        (own_ms + REFERENCE.token_ms * (worker.pending_tokens + share) + (worker.base_ms if worker.held else 0.0))
        * worker.speed
        for worker in workers
    )
    return max(waited_ms, soonest)


def _timed(scene: _Scene, now_ms: float, state: State, targets: Targets) -> State:
    """Since when it is over its target, and since when calm."""
    calm = not scene.over and enough(scene.demand, scene.kind, scene.active - 1, targets)
    over_ms = (now_ms if state.over_ms is None else state.over_ms) if scene.over else None
    calm_ms = (now_ms if state.calm_ms is None else state.calm_ms) if calm else None
    return replace(state, over_ms=over_ms, calm_ms=calm_ms)


def _wished(scene: _Scene, now_ms: float, state: State, targets: Targets, pace: Pace) -> State:
    """The wish rises at once, and falls when it was lower for a while."""
    counts = range(1, MOST)
    wish = 1 + bisect_left(counts, True, key=lambda count: enough(scene.demand, scene.kind, count, targets))  # noqa: FBT003 - what is looked for
    if scene.over:
        wish = max(wish, scene.active + 1)
    if wish >= state.wanted:
        return replace(state, wanted=wish, lower=0, lower_ms=None)
    lower = max(wish, state.lower)
    if _since(state.lower_ms, now_ms) >= pace.calm_ms:
        return replace(state, wanted=lower, lower=0, lower_ms=None)
    return replace(state, lower=lower, lower_ms=now_ms if state.lower_ms is None else state.lower_ms)


def _to_promote(sight: Sight, state: State) -> str:
    """A warm one, else one that sleeps; those that failed last."""
    ranked = sorted(sight.standbys, key=lambda one: (_place(one.id, state.tried), not one.warm, one.id))
    return ranked[0].id if ranked else ""


def _place(worker: str, tried: Sequence[str]) -> int:
    return tried.index(worker) + 1 if worker in tried else 0


def _to_rest(sight: Sight) -> str:
    """The one that holds least."""
    able = [worker for worker in sight.view.workers if worker.id in sight.reserves and worker.active]
    return min(able, key=lambda worker: (worker.held, worker.id)).id if able else ""


def _since(moment_ms: float | None, now_ms: float) -> float:
    return -math.inf if moment_ms is None else now_ms - moment_ms
