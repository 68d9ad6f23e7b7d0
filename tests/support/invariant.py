"""What holds between any two function calls: every accepted job is in exactly one place, and the counts tell so."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from protocol.states import Priority, State
from tests.support.snapshot import Entry, Snapshot


def violations(snapshot: Snapshot) -> list[str]:
    """Every broken rule, in words; empty when all is well."""
    return [*snapshot.leaks(), *(f"{shard}: {what}" for shard in snapshot.shards for what in _shard(snapshot, shard))]


def _shard(snapshot: Snapshot, shard: str) -> Iterator[str]:
    view = _View(snapshot, shard)
    yield from view.misplaced()
    yield from view.miscounted()
    yield from view.misheld()
    yield from view.buckets_differ()
    yield from view.deadlines_differ()
    yield from view.ends_without_result()
    yield from view.expiring_too_early()


class _View:
    """One shard of a snapshot."""

    def __init__(self, snapshot: Snapshot, shard: str) -> None:
        self._snapshot, self._shard = snapshot, shard
        self.jobs = {ref: entry.value for ref, entry in snapshot.of_kind(shard, "job").items()}
        self.states = {ref: State(job["state"]) for ref, job in self.jobs.items()}
        self.alive = {ref for ref, state in self.states.items() if not state.terminal}
        self.lanes = {priority: self._key(f"lane:{priority}", {}) for priority in Priority}
        self.due = self._key("due", {})
        self.inboxes = {name: entry.value for name, entry in snapshot.of_kind(shard, "inbox").items()}

    def _key(self, name: str, default: Any) -> Any:
        return self._snapshot.value(f"tf:{{{self._shard}}}:{name}", default)

    def _places(self) -> Iterator[tuple[str, str]]:
        """(ref, place) of everything that stands in a lane, in `due` or in an inbox."""
        for priority, members in self.lanes.items():
            yield from ((member.split(":", 1)[1], f"lane:{priority} as {member}") for member in members)
        yield from ((ref, "due") for ref in self.due)
        for worker, entries in self.inboxes.items():
            yield from ((f["j"], f"inbox:{worker} at {at}") for at, f in entries if f["k"] == "assign")

    def misplaced(self) -> Iterator[str]:
        found: dict[str, list[str]] = {}
        for ref, place in self._places():
            found.setdefault(ref, []).append(place)
        for ref in self.jobs.keys() | found.keys():
            wanted, there = self._wanted_place(ref), found.get(ref, [])
            if there != wanted:
                yield f"{ref} is {self.states.get(ref, 'unknown')}, must stand in {wanted}, stands in {there}"

    def _wanted_place(self, ref: str) -> list[str]:
        job = self.jobs.get(ref, {})
        match self.states.get(ref):
            case State.QUEUED:
                return [f"lane:{job['priority']} as {job['member']}"]
            case State.DELAYED:
                return ["due"]
            case State.ASSIGNED | State.RUNNING:
                return [f"inbox:{job['worker']} at {job['entry']}"]
            case _:
                return []

    def miscounted(self) -> Iterator[str]:
        """Limits count lane plus `due`, for the shard and for each tenant."""
        waiting = [ref for ref, state in self.states.items() if state in (State.QUEUED, State.DELAYED)]
        shard = Counter(self.jobs[ref]["priority"] for ref in waiting)
        tenants: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for ref in waiting:
            tenants[ref.split(":")[0]][self.jobs[ref]["priority"]] += 1
        yield from self._differs("clock", shard)
        for name in tenants.keys() | self._snapshot.of_kind(self._shard, "tenant").keys():
            yield from self._differs(f"tenant:{name}", tenants[name])

    def _differs(self, key: str, wanted: Counter[str]) -> Iterator[str]:
        counts = self._key(key, {})
        for priority in Priority:
            counted = int(counts.get(f"q:{priority}", 0))
            if counted != wanted[priority]:
                yield f"{key} counts {counted} {priority} jobs, {wanted[priority]} wait"

    def misheld(self) -> Iterator[str]:
        for worker in self._key("workers", {}):
            told = int(self._key(f"worker:{worker}", {}).get("held", 0))
            assigned = sum(f["k"] == "assign" for _, f in self.inboxes.get(worker, []))
            if told != assigned:
                yield f"worker:{worker} counts {told} held jobs, its inbox has {assigned}"

    def buckets_differ(self) -> Iterator[str]:
        """What an API key has alive, as its bucket counts it; the key of one that has anything alive stays."""
        alive: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for ref in self.alive:
            if taken := self.jobs[ref].get("bucket"):
                name = f"{ref.split(':')[0]}:{taken.split()[0]}"
                alive[name] += 1
                sizes[name] += int(taken.split()[3])
        buckets = self._snapshot.of_kind(self._shard, "bucket")
        for name in alive.keys() | buckets.keys():
            bucket = buckets.get(name, Entry(expires=True, value={"jobs": 0, "bytes": 0}))
            told = (int(bucket.value["jobs"]), int(bucket.value["bytes"]))
            if told != (alive[name], sizes[name]) or bucket.expires != (alive[name] == 0):
                yield f"{name} has {alive[name]} jobs alive of {sizes[name]} bytes, its bucket is {bucket}"

    def deadlines_differ(self) -> Iterator[str]:
        alive, timed = self.alive, set(self._key("deadlines", {}))
        if alive != timed:
            yield f"without a deadline: {sorted(alive - timed)}; a deadline but not alive: {sorted(timed - alive)}"

    def ends_without_result(self) -> Iterator[str]:
        results, bodies = (self._snapshot.of_kind(self._shard, kind) for kind in ("result", "body"))
        for ref, state in self.states.items():
            if (ref in self.alive) == (ref in results):
                yield f"{ref} is {state}, result: {ref in results}"
            if ref in self.alive and ref not in bodies:
                yield f"{ref} is {state} and has no body"

    def expiring_too_early(self) -> Iterator[str]:
        """What a living job needs has no expiry yet."""
        for ref in self.alive:
            state = self.states[ref]
            tenant, own = f"tenant:{ref.split(':')[0]}", (f"job:{ref}", f"body:{ref}", f"tokens:{ref}")
            needed = own if state.held else (*own, tenant)
            for name in needed:
                entry = self._snapshot.entries.get(f"tf:{{{self._shard}}}:{name}")
                if entry is not None and entry.expires:
                    yield f"{ref} is {state}, and {name} expires"
