"""Recorded rounds through another policy: what it would have done, on what was seen then. Pure.

Each round is judged by itself: what a policy would have changed in later rounds is not known, a simulation
(`tokenfleet simulate`) tells that.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.policy.decide import decide
from scheduler.policy.decision import Decision
from scheduler.policy.policy import Policy
from scheduler.policy.recording import Round
from scheduler.policy.view import Chance


@dataclass(slots=True)
class Tally:
    """What one policy did over all rounds.

    Attributes:
        name: the policy.
        assigned: how many jobs it started.
        same: those that it started where the recorded one did, in the same round.
        elsewhere: those that it started in the same round, on another worker.
        withheld: those that the recorded one started, and it did not in that round.
        added: those that it started, and the recorded one did not in that round.
        refused: jobs that it refused, each once.
        predicted_ms: of each start, in order.
    """

    name: str
    assigned: int = 0
    same: int = 0
    elsewhere: int = 0
    withheld: int = 0
    added: int = 0
    refused: int = 0
    predicted_ms: "array[float]" = field(default_factory=lambda: array("d"))

    @property
    def differ(self) -> int:
        """Starts that are not the recorded ones."""
        return self.elsewhere + self.withheld + self.added

    def predicted(self, share: float) -> float | None:
        """A percentile of the predicted first tokens, in ms; None when it started nothing."""
        ordered = sorted(self.predicted_ms)
        return ordered[int(share * (len(ordered) - 1))] if ordered else None


@dataclass(slots=True)
class Comparison:
    """All that a replay found.

    Attributes:
        recorded: what was done, by the policies of the recording.
        others: what the others would have done, in the order in which they were named.
        rounds: how many were replayed.
        from_ms, to_ms: the first and the last of them, in Redis's time.
    """

    recorded: Tally
    others: Sequence[Tally]
    rounds: int = 0
    from_ms: float = 0.0
    to_ms: float = 0.0


def compare(rounds: Iterable[Round], policies: Mapping[str, Policy], chance: Callable[[], Chance]) -> Comparison:
    """Run all rounds through each policy, each with a chance of its own."""
    comparison = Comparison(Tally(""), [Tally(name) for name in policies])
    chances = [chance() for _ in policies]
    names: dict[str, None] = {}
    for one in rounds:
        comparison.from_ms = comparison.from_ms or one.now_ms
        comparison.to_ms = one.now_ms
        comparison.rounds += 1
        names[one.head.policy] = None
        _count(comparison.recorded, one.decision, one.decision)
        for tally, policy, rng in zip(comparison.others, policies.values(), chances, strict=True):
            made = decide(one.view, one.now_ms, rng, policy, one.head.targets, one.head.window)
            _count(tally, made, one.decision)
    comparison.recorded.name = ", ".join(names)
    return comparison


def _count(tally: Tally, made: Decision, recorded: Decision) -> None:
    here = {item.ref: item.worker for item in made.assignments}
    there = {item.ref: item.worker for item in recorded.assignments}
    same = sum(there.get(ref) == worker for ref, worker in here.items())
    both = len(here.keys() & there.keys())
    tally.assigned += len(here)
    tally.same += same
    tally.elsewhere += both - same
    tally.withheld += len(there) - both
    tally.added += len(here) - both
    tally.refused += len(made.refusals)
    tally.predicted_ms.extend(item.predicted_ms for item in made.assignments)
