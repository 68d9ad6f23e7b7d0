"""What came of a run: goodput, latencies, cache hits, and how busy the workers were."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from protocol.wire import JsonObject
from scheduler.policy.order import Targets
from tokenfleet.simulate.job import Outcome
from tokenfleet.simulate.world import World


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of times in ms; 0 where there are none."""

    p50: float = 0.0
    p99: float = 0.0

    @classmethod
    def of(cls, times_ms: Iterable[float]) -> "Percentiles":
        """The value that half, and that 99 of 100, do not exceed."""
        ordered = sorted(times_ms)
        if not ordered:
            return cls()
        return cls(ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)])


@dataclass(frozen=True, slots=True)
class Summary:
    """One run.

    Attributes:
        requests: all, those that their clients cancelled too.
        goodput: share of the online requests whose first token and time per token met their targets, among those that
            were not cancelled: refused ones count as misses.
        offline_tokens: prompt tokens whose first token came, and output tokens, of offline requests.
        first_ms, token_ms: of the online requests: from arrival to first token, and per output token after it.
        reruns: how often a request began anew because its worker died.
        hits: share of the prompt tokens that were in the cache of the worker that ran them.
        utilisation: share of its life that each worker computed.
    """

    requests: int
    goodput: float
    refused: int
    cancelled: int
    unfinished: int
    offline_tokens: int
    first_ms: Percentiles
    token_ms: Percentiles
    reruns: int
    hits: float
    seconds: float
    utilisation: dict[str, float]

    @property
    def offline_rate(self) -> float:
        """Offline tokens a second."""
        return self.offline_tokens / self.seconds if self.seconds else 0.0

    def as_json(self) -> JsonObject:
        """For machines."""
        return asdict(self)


def summary(world: World, targets: Targets) -> Summary:
    """Sum a world up that has run."""
    outcomes = list(world.outcomes.values())
    online = [one for one in outcomes if one.request.priority.online]
    prompts = sum(engine.prompt_tokens for engine in world.engines)
    return Summary(
        requests=len(outcomes),
        goodput=goodput(online, targets),
        refused=sum(one.refused for one in outcomes),
        cancelled=sum(one.cancelled for one in outcomes),
        unfinished=sum(not (one.refused or one.cancelled or one.ended_ms is not None) for one in outcomes),
        offline_tokens=sum(map(_tokens, (one for one in outcomes if not one.request.priority.online))),
        first_ms=Percentiles.of(one.ttft_ms for one in online if one.ttft_ms is not None),
        token_ms=Percentiles.of(one.token_ms for one in online if one.token_ms),
        reruns=sum(one.tries for one in outcomes),
        hits=sum(engine.hit_tokens for engine in world.engines) / prompts if prompts else 0.0,
        seconds=world.now_ms / 1000,
        utilisation={engine.spec.name: engine.utilisation(world.now_ms) for engine in world.engines},
    )


def goodput(outcomes: Sequence[Outcome], targets: Targets) -> float:
    """Share that met its targets, of those that were not cancelled; 1 where there are none."""
    counted = [one for one in outcomes if not one.cancelled]
    return sum(one.good(targets) for one in counted) / len(counted) if counted else 1.0


def _tokens(outcome: Outcome) -> int:
    return outcome.tokens + (outcome.request.prompt_tokens if outcome.first_ms is not None else 0)
