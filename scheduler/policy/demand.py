"""What a shard's workers are asked for, and how soon first tokens would come with more or fewer of them.

A step takes a + b·tokens + κ·KV (`protocol/cost_model.py`), so demand is a share of engines' time, in reference
engines:

    demand   = b·rate + Σ strength·(base − a)·(1 − u) / base    rate: prompt tokens to compute, each ms
    idle(n)  = 1 − demand / (n·strength)                        strength: 1 / speed; u = b·rate / Σ strength
    step(n)  = a / (strength·idle)                              the fixed point: a slower step gathers more tokens
    first(n) = step / 2 + (lone prefill / strength + b·pending / (n·strength)) / idle

The streams' part of the demand is what their tokens took while prompts had the share u; it stays what it is when they
are spread over more workers or fewer, and that is why the formulas may be asked about another n.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.policy.order import Targets
from scheduler.policy.view import REFERENCE, lone_prefill_ms
from scheduler.policy.worker import CALM, Worker

BUSY = 0.95
"""From this share of their time on engines have no room for chance: waits grow without bound."""
EASY = 0.5
"""Workers are enough when the predicted first token takes at most this share of its target."""
SLOTS_EASY = 0.8
"""And when jobs hold at most this share of their slots, where no offline job waits to fill them."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a shard is asked for.

    Attributes:
        typical_tokens: the prompt of an online job as they come.
        prefill: reference engines that new prompts keep busy, `b·λ`.
        decode: reference engines that streams keep busy.
        pending_tokens: prompt tokens before a new online job: on the workers, and of the online jobs that wait.
        held: jobs on the workers, and online jobs that wait for a place there.
        step_ms: how long a step took while so many were held; 0 when that is not known.
        medium_ms, low_ms: what a reference engine would take for the offline jobs that wait.
    """

    typical_tokens: int
    prefill: float = 0.0
    decode: float = 0.0
    pending_tokens: int = 0
    held: float = 0.0
    medium_ms: float = 0.0
    low_ms: float = 0.0
    step_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Kind:
    """A worker as they are on average.

    Attributes:
        strength: what it computes, over a reference engine.
        slots: how many jobs it takes.
    """

    strength: float = 1.0
    slots: float = 0.0
    """0 for no limit."""


def kind_of(workers: Sequence[Worker]) -> Kind:
    """The average of some workers."""
    if not workers:
        return Kind()
    count = len(workers)
    return Kind(sum(1 / worker.speed for worker in workers) / count, sum(worker.slots for worker in workers) / count)


def decode_demand(workers: Sequence[Worker], prefill: float) -> float:
    """Reference engines that the workers' streams keep busy while prompts keep `prefill` of them busy."""
    strength = sum(1 / worker.speed for worker in workers)
    if not strength:
        return 0.0
    left = 1 - min(BUSY, prefill / strength)
    return sum(left * (worker.base_ms - REFERENCE.base_ms) / (worker.base_ms * worker.speed) for worker in workers)


def first_token_ms(demand: Demand, kind: Kind, count: int) -> float:
    """How soon a typical online job's first token comes with so many workers; infinite when they are too few."""
    idle = _idle(demand, kind, count)
    if idle <= 0:
        return float("inf")
    pending_ms = REFERENCE.token_ms * demand.pending_tokens / (count * kind.strength)
    own_ms = lone_prefill_ms(demand.typical_tokens) / kind.strength
    return step_ms(demand, kind, count) / 2 + (own_ms + pending_ms) / idle


def step_ms(demand: Demand, kind: Kind, count: int) -> float:
    """How long a token of a stream takes with so many workers."""
    idle = _idle(demand, kind, count)
    return REFERENCE.base_ms / (kind.strength * idle) if idle > 0 else float("inf")


def target_ms(demand: Demand, kind: Kind, targets: Targets) -> float:
    """When the typical job's first token should be there."""
    return max(targets.high_ms, 3 * lone_prefill_ms(demand.typical_tokens) / kind.strength)


def enough(demand: Demand, kind: Kind, count: int, targets: Targets) -> bool:
    """Whether so many workers would meet all targets with ease; more of them always do too."""
    if count < 1 or first_token_ms(demand, kind, count) > EASY * target_ms(demand, kind, targets):
        return False
    token_ms = max(targets.token_ms, 3 * REFERENCE.base_ms / kind.strength)
    if step_ms(demand, kind, count) > CALM * token_ms:
        return False
    offline_ms = demand.medium_ms + demand.low_ms
    if kind.slots and not offline_ms and _held(demand, kind, count) > SLOTS_EASY * kind.slots * count:
        return False
    room = count * kind.strength * _idle(demand, kind, count)
    return demand.medium_ms <= targets.medium_ms * room and offline_ms <= targets.low_ms * room


def _held(demand: Demand, kind: Kind, count: int) -> float:
    """Jobs on so many workers: with slower steps each stays for longer (Little's law)."""
    return demand.held * step_ms(demand, kind, count) / demand.step_ms if demand.step_ms else demand.held


def _idle(demand: Demand, kind: Kind, count: int) -> float:
    """The share of the workers' time that is left; 0 when they are overloaded."""
    if count < 1:
        return 0.0
    busy = (demand.prefill + demand.decode) / (count * kind.strength)
    return 1 - busy if busy < BUSY else 0.0
