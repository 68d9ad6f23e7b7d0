"""Takes jobs through their lives step by step, on a blocking client: what scheduler and worker do, without them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis import Redis

from protocol import functions, reads
from protocol.call import Call, T, run_sync
from protocol.functions import FinishReply, Move, Submission, Submitted, Ticked
from protocol.handle import Handle, Shard
from protocol.messages import Frame, InboxEntry, JobRecord, Started
from protocol.states import Priority, State
from tests.support import snapshot
from tests.support.builders import BOSS, LEASE_MS, SHARD, a_handle, a_submission, completed, join_worker, tick_as
from tests.support.invariant import violations
from tests.support.store_clock import StoreClock


@dataclass(frozen=True)
class Driver:
    """Each method is one function call, or one read."""

    redis: Redis
    shard: Shard = SHARD

    def run(self, call: Call[T]) -> T:
        return run_sync(self.redis, call)

    def submit(self, own_id: str = "a", **changes: Any) -> Submission:
        job = a_submission(own_id, shard=self.shard, **changes)
        self.run(functions.submit(job))
        return job

    def submitted(self, job: Submission) -> Submitted:
        return self.run(functions.submit(job))

    def lead(self) -> None:
        self.run(tick_as(BOSS, shard=self.shard))

    def join(self, worker: str = "w1", slots: int = 4, **changes: Any) -> int | None:
        return self.run(join_worker(worker, slots, shard=self.shard, **changes))

    def assign(self, handle: Handle, worker: str = "w1", token: str = BOSS) -> int | str | None:
        """The attempt's number, or why there is none; None when another leads."""
        return self.move(handle, worker=worker, token=token)

    def assign_all(self, handles: Sequence[Handle], worker: str = "w1", token: str = BOSS) -> None:
        """In one call, in this order."""
        self.run(functions.assign(self.shard, token, [Move(self.job(one).member, worker, 0) for one in handles]))

    def park(self, handle: Handle, ms: int) -> int | str | None:
        return self.move(handle, park_ms=ms)

    def move(self, handle: Handle, worker: str = "", park_ms: int = 0, token: str = BOSS) -> int | str | None:
        member = self.job(handle).member
        moved = self.run(functions.assign(self.shard, token, [Move(member, worker, park_ms)]))
        return moved[0] if moved else None

    def start(self, handle: Handle, attempt: int, worker: str = "w1") -> Started | None:
        return self.run(functions.start(handle, attempt, worker))

    def running(self, own_id: str = "a", worker: str = "w1", **changes: Any) -> tuple[Handle, int]:
        """A job that runs on `worker`, which joins; its handle and attempt."""
        self.lead()
        self.join(worker)
        handle = self.submit(own_id, **changes).handle
        return handle, self.restarted(handle, worker)

    def restarted(self, handle: Handle, worker: str = "w1") -> int:
        """Assigns and starts a queued job; its attempt."""
        attempt = self.assign(handle, worker)
        assert isinstance(attempt, int), attempt
        assert self.start(handle, attempt, worker)
        return attempt

    def emit(self, handle: Handle, attempt: int, seq: int, worker: str = "w1", text: str = "x") -> int:
        chunk = {"choices": [{"index": 0, "delta": {"content": text}}]}
        return self.run(functions.emit(handle, attempt, worker, seq, [chunk]))

    def finish(self, handle: Handle, attempt: int, worker: str = "w1", frames: int = 0) -> FinishReply:
        return self.run(functions.finish(completed(handle, attempt, worker, frames)))

    def inbox(self, worker: str = "w1", after: str = "0") -> list[InboxEntry]:
        return self.run(reads.inbox_after(self.shard, worker, after, 1))

    def tick_after_lease(self, clock: StoreClock) -> Ticked:
        """All leases end, while the dispatcher was there all the time."""
        for _ in range(LEASE_MS // 2_000):
            self.lead()
            clock.advance(2_001)
        return self.run(tick_as(BOSS, shard=self.shard))

    def cancel(self, own_id: str = "a") -> State:
        return self.run(functions.cancel(a_handle(own_id, shard=self.shard)))

    def job(self, handle: Handle) -> JobRecord:
        found = self.run(reads.job_record(handle))
        assert found is not None, f"there is no job {handle}"
        return found

    def log(self, handle: Handle) -> list[Frame]:
        return self.run(reads.log_after(handle, (0, 0)))

    def lane(self, *priorities: Priority) -> list[str]:
        """Own ids in the order of dispatch."""
        return [
            entry.ref.partition(":")[2]
            for priority in priorities or (Priority.HIGH,)
            for entry in self.run(reads.lane_head(self.shard, priority, 1000))
        ]

    def snapshot(self) -> snapshot.Snapshot:
        return snapshot.take(self.redis)

    def check(self) -> None:
        """The invariant holds now."""
        assert not violations(self.snapshot())
