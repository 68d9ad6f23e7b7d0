"""What must hold between any two steps of a walk over the function library."""

from collections.abc import Callable, Mapping

from protocol import keys
from protocol.functions import Submission
from protocol.handle import Handle
from protocol.states import State, may_follow
from tests.protocol import accounts
from tests.support import snapshot
from tests.support.builders import SHARD
from tests.support.invariant import violations

Jobs = Mapping[str, Mapping[str, str]]
Mark = Mapping[tuple[str, str], bytes]


class Rules:
    """Compares what Redis holds with what it held before."""

    def __init__(self, look: Callable[[], snapshot.Snapshot]) -> None:
        self._look = look
        self._results: dict[tuple[str, str], bytes] = {}
        self._seen = snapshot.Snapshot({})
        self.jobs: Jobs = {}
        """Every job's hash after the last step."""
        self.leader = ""
        """Who led after the last step."""
        self.changes: set[tuple[State, State]] = set()

    def broken(self) -> list[str]:
        """Looks at Redis after a step; tells which rules that step broke."""
        seen = self._look()
        jobs = _jobs(seen)
        found = violations(seen)
        found += accounts.wrong(self._seen, seen)
        for ref, job in jobs.items():
            found += self._bad_change(seen, ref, job)
        for ref, entry in seen.of_kind(str(SHARD), "result").items():
            found += self._bad_result(ref, jobs.get(ref), entry.value)
        self._take(seen, jobs)
        return found

    def note_leader(self) -> None:
        """Nothing but the lead may have changed."""
        self.leader = self._look().value(keys.leader(SHARD), b"").decode()

    def _take(self, seen: snapshot.Snapshot, jobs: Jobs) -> None:
        self._seen, self.jobs = seen, jobs
        self.leader = seen.value(keys.leader(SHARD), b"").decode()

    def mark(self) -> Mark:
        """What was recorded so far, for a store that may lose its last moments."""
        return dict(self._results)

    def rewind(self, mark: Mark) -> None:
        """The store went back to that moment: what it holds now is the beginning."""
        seen = self._look()
        self._results = dict(mark)
        self._take(seen, _jobs(seen))

    def holds(self, ref: str, attempt: int, worker: str) -> bool:
        """Whether the attempt was this worker's before the step."""
        job = self.jobs.get(ref)
        return job is not None and _attempt(job) == attempt and job.get("worker") == worker and State(job["state"]).held

    def recorded(self, ref: str, attempt: int) -> bool:
        """Whether this attempt had brought the job's end before the step."""
        job = self.jobs.get(ref)
        return job is not None and _attempt(job) == attempt and job["state"] in (State.COMPLETED, State.FAILED)

    def failed(self, job: Submission) -> bool:
        """Whether a job of this id and body had failed before the step, and its outcome is there."""
        found = self.jobs.get(job.handle.ref, {})
        whole = found.get("state") == State.FAILED and found.get("digest") == job.digest
        return whole and self._seen.value(keys.result(job.handle)) is not None

    def living(self) -> list[str]:
        """Jobs that had not ended before the step."""
        return [ref for ref, job in self.jobs.items() if not State(job["state"]).terminal]

    def attempt(self, ref: str) -> int:
        """The job's attempt before the step; 0 when there was no such job."""
        return _attempt(self.jobs.get(ref, {}))

    def _bad_change(self, seen: snapshot.Snapshot, ref: str, job: Mapping[str, str]) -> list[str]:
        before = self.jobs.get(ref)
        if before is None or before is job:
            return []
        old, new = State(before["state"]), State(job["state"])
        if old != new:
            self.changes.add((old, new))
        found = [] if old == new or may_follow(old, new) else [f"{ref} went from {old} to {new}"]
        if _attempt(job) < _attempt(before):
            found.append(f"{ref} went back from attempt {_attempt(before)} to {_attempt(job)}")
        if old.terminal and old != new and seen.value(keys.tokens(Handle.of(SHARD, ref))):
            found.append(f"{ref} runs anew and has its old log")
        return found

    def _bad_result(self, ref: str, job: Mapping[str, str] | None, result: bytes) -> list[str]:
        """Each run has one recorded result, which never changes; the nonces tell the runs of one id apart."""
        if job is None:
            return []
        first = self._results.setdefault((ref, job["nonces"].split()[-1] + job["submitted"]), result)
        return [] if first == result else [f"{ref} has the result {result!r} after {first!r}"]


def _jobs(seen: snapshot.Snapshot) -> Jobs:
    return {ref: entry.value for ref, entry in seen.of_kind(str(SHARD), "job").items()}


def _attempt(job: Mapping[str, str]) -> int:
    return int(job.get("attempt", 0))
