"""What came of it: from what producers and followers noted, and from what is left in Redis."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from redis import Redis

from bench.chaos.journal import Fact, read
from bench.chaos.monkey import Cut
from bench.chaos.plan import LEASE_S, SHARD, SLACK_S, Plan, number_of
from bench.report import Target
from producer.batch.tally import nearest_rank
from protocol import reads
from protocol.call import run_sync
from protocol.states import State
from tests.support import snapshot

MOST_DEAD = 10_000


@dataclass(frozen=True, slots=True)
class Left:
    """What Redis holds at the end.

    Attributes:
        dead: numbers of the jobs that were set aside.
        stuck: jobs that have not ended.
        keys: those that neither expire nor are permanent.
    """

    dead: frozenset[int]
    stuck: int
    keys: tuple[str, ...]


def left_in(redis: Redis) -> Left:
    """Look at everything."""
    held = snapshot.take(redis)
    states = [State(entry.value["state"]) for entry in held.of_kind(str(SHARD), "job").values()]
    dead = run_sync(redis, reads.dead_entries(SHARD, MOST_DEAD))
    stuck = sum(not state.terminal for state in states)
    return Left(frozenset(number_of(entry.handle.own_id) for entry in dead), stuck, tuple(held.leaks()))


@dataclass(frozen=True, slots=True)
class Seen:
    """What all processes noted: the producers' facts, those together with the followers', and whom poison cut off."""

    produced: Sequence[Fact]
    all: Sequence[Fact]
    poisoned: Sequence[Cut] = ()

    @classmethod
    def of(cls, plan: Plan) -> "Seen":
        """Read the journals."""
        producers = [f"producer-{number}" for number in range(plan.producers)]
        followers = [f"follower-{number}" for number in range(plan.followers)]
        produced = [fact for role in producers for fact, _ in read(plan.journal(role))]
        followed = [fact for role in followers for fact, _ in read(plan.journal(role))]
        workers = [f"worker-{number}" for number in range(plan.workers)]
        dying = [fact for role in workers for fact, _ in read(plan.journal(role))]
        return cls(produced, [*produced, *followed], [Cut(fact.number, fact.attempt, fact.at_s) for fact in dying])

    def kind(self, kind: str) -> list[Fact]:
        """All facts of a kind, whoever saw them."""
        return [fact for fact in self.all if fact.kind == kind]


def lost(plan: Plan, seen: Seen) -> set[int]:
    """Jobs whose producer has not seen them complete; of poison: fail."""
    poison = plan.poisonous()
    ended = {fact.number: fact.detail.split(" ")[0] for fact in seen.produced if fact.kind == "end"}
    wanted = {number: State.FAILED if number in poison else State.COMPLETED for number in range(plan.jobs)}
    return {number for number, state in wanted.items() if ended.get(number) != state}


def doubled(seen: Seen) -> set[int]:
    """Jobs of which two different ends were seen."""
    ends: dict[int, set[tuple[int, str]]] = defaultdict(set)
    for fact in seen.kind("end"):
        ends[fact.number].add((fact.attempt, fact.detail))
    return {number for number, found in ends.items() if len(found) > 1}


def recoveries(cuts: Iterable[Cut], seen: Seen, poison: frozenset[int]) -> list[float]:
    """Seconds from each kill to the next attempt's first frame, as the first who saw it noted it.

    Not counted: poison, which has no frames; attempts that had ended when they were killed; and attempts whose next one
    was killed as well before it spoke, since that kill is counted.
    """
    first: dict[int, dict[int, float]] = defaultdict(dict)
    for fact in seen.kind("first"):
        spoke = first[fact.number]
        spoke[fact.attempt] = min(fact.at_s, spoke.get(fact.attempt, fact.at_s))
    by_job: dict[int, list[Cut]] = defaultdict(list)
    for cut in (*cuts, *seen.poisoned):
        by_job[cut.number].append(cut)
    found = []
    for number, mine in by_job.items():
        for cut in mine if number not in poison else ():
            later = [at_s for attempt, at_s in first[number].items() if attempt > cut.attempt]
            again = [other.at_s for other in mine if other.attempt > cut.attempt]
            if later and not (again and min(again) < min(later)):
                found.append(min(later) - cut.at_s)
    return sorted(found)


def percentile(values: Sequence[float], share: float) -> float | None:
    """Of sorted values; None of none."""
    return nearest_rank(values, share) if values else None


def targets(plan: Plan, seen: Seen, left: Left, recovered: Sequence[float]) -> list[Target]:
    """What was asked for."""
    rows = {
        "lost": len(lost(plan, seen)),
        "doubled": len(doubled(seen)),
        "stale frames": len(seen.kind("bad")),
        "stuck": left.stuck,
        "dead letters that are not the planted poison, or missing": len(left.dead ^ plan.poisonous()),
    }
    return [
        *(Target(name, value, 0, "lower") for name, value in rows.items()),
        Target("recovery p99, s", percentile(recovered, 0.99), LEASE_S + SLACK_S, "lower"),
        Target("Redis keys left over", len(left.keys), 0, "lower"),
    ]
