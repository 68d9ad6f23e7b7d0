"""All attempts of one life: taken in from the inbox, started, stopped, and counted."""

import asyncio
from collections.abc import Callable, Sequence

from redis.asyncio import Redis

from protocol.call import run_all
from protocol.clock import Clock
from protocol.errors import FleetError, ProtocolViolation
from protocol.functions import start
from protocol.handle import Handle, Shard
from protocol.log import get_logger
from protocol.messages import InboxEntry, Started
from worker.attempt import Attempt, Runner
from worker.load import Fresh
from worker.outbox import Outbox
from worker.outgoing import Outgoing
from worker.verdict import Drop, GiveBack, Verdict, malformed

CLOSING_S = 5.0
"""How long engines may take to abort what was stopped."""
Key = tuple[str, int]
_log = get_logger("worker")


class Attempts:
    """Runs what the inbox brings.

    Args:
        redis: where attempts are started.
        shard: where the jobs are.
        worker: the id of this life.
        clock: for time limits.
        accepting: whether new attempts may start; what may not is given back.
    """

    def __init__(self, redis: Redis, shard: Shard, worker: str, clock: Clock, accepting: Callable[[], bool]) -> None:
        self._redis, self._shard, self._worker = redis, shard, worker
        self._clock, self._accepting = clock, accepting
        self._running: dict[Key, Attempt] = {}
        self.taken = 0
        self.idle = asyncio.Event()
        self.idle.set()

    def __len__(self) -> int:
        """How many are not over; one that has ended counts until Redis has recorded it."""
        return len(self._running)

    def serve(self, runner: Runner, outbox: Outbox, time_limit_s: float) -> None:
        """Name the parts that attempts go through, before the first is taken."""
        self._runner, self._outbox, self._time_limit_s = runner, outbox, time_limit_s

    async def take(self, entries: Sequence[InboxEntry]) -> None:
        """Start what is assigned, all in one round trip.

        Raises:
            FleetError: some could not be started, and stay in the inbox.
        """
        new = [
            Outgoing(Handle.of(self._shard, entry.ref), entry.attempt, self._worker)
            for entry in entries
            if (entry.ref, entry.attempt) not in self._running
        ]
        if not self._accepting():
            self._give_back(new)
        elif new:
            replies = await run_all(self._redis, [start(out.handle, out.attempt, self._worker) for out in new])
            errors = [error for out, reply in zip(new, replies, strict=True) if (error := self._begin(out, reply))]
            if errors:
                raise errors[0]

    def abort(self, entry: InboxEntry) -> None:
        """The job ended over our head."""
        if attempt := self._running.get((entry.ref, entry.attempt)):
            attempt.stop(Drop())

    def sweep(self) -> None:
        """Stop what has run for too long."""
        now_s = self._clock.monotonic()
        for attempt in list(self._running.values()):
            if verdict := attempt.overdue(now_s):
                attempt.stop(verdict)

    def running(self) -> list[Attempt]:
        """Those that are not over."""
        return list(self._running.values())

    def stop_all(self, verdict: Verdict) -> None:
        """End all that has not ended by itself."""
        for attempt in list(self._running.values()):
            attempt.stop(verdict)

    async def close(self) -> None:
        """Abort everything and write nothing more."""
        tasks = [attempt.task for attempt in self._running.values() if attempt.task]
        for attempt in list(self._running.values()):
            attempt.out.over = True
            attempt.stop(Drop())
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=CLOSING_S)
            if stuck:
                _log.warning("engine_does_not_abort", attempts=len(stuck), after_s=CLOSING_S)

    def fresh(self) -> Fresh:
        """What is taken and not on the engine yet."""
        fresh = [attempt.started.spec.prompt_tokens for attempt in self._running.values() if not attempt.on_engine]
        return Fresh(len(fresh), sum(fresh))

    def over(self, out: Outgoing) -> None:
        """The outbox is done with an attempt, or its log can't be mended."""
        attempt = self._running.get((out.handle.ref, out.attempt))
        if attempt is None or attempt.out is not out:
            return
        if not out.over:
            attempt.stop(GiveBack(why="its token log lost frames that nobody has any more"))
            return
        attempt.stop(Drop())
        del self._running[out.handle.ref, out.attempt]
        if not self._running:
            self.idle.set()

    def _give_back(self, new: Sequence[Outgoing]) -> None:
        for out in new:
            self._outbox.end(out, GiveBack(why="its worker takes nothing any more"))

    def _begin(self, out: Outgoing, reply: Started | FleetError | None) -> FleetError | None:
        """Run it, or return why nobody knows whether it is ours."""
        if isinstance(reply, ProtocolViolation):
            self._outbox.end(out, malformed())
        elif isinstance(reply, FleetError):
            return reply
        elif reply is not None and reply.deadline_left_ms > 0:
            if self._accepting():
                self._run(out, reply)
            else:
                self._give_back([out])
        return None

    def _run(self, out: Outgoing, started: Started) -> None:
        limit_s = started.spec.time_limit_s or self._time_limit_s
        attempt = Attempt(out, started, self._clock.monotonic(), limit_s)
        self._running[out.handle.ref, out.attempt] = attempt
        self.taken = max(self.taken, out.attempt)
        self.idle.clear()
        attempt.task = asyncio.create_task(self._runner.run(attempt))
