"""All attempts of one life: taken in from the inbox, started, stopped, and counted."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from redis.asyncio import Redis

from protocol import failpoints
from protocol.call import run_all
from protocol.clock import Clock
from protocol.errors import FleetError, ProtocolViolation
from protocol.functions import start
from protocol.handle import Handle, Shard
from protocol.log import get_logger
from protocol.messages import InboxEntry, JobSpec, Started
from protocol.prefix import uncached_tokens
from telemetry import tracing
from worker.attempt import Attempt, Runner
from worker.figures import Figures, Stream, slow_share
from worker.outbox import Outbox
from worker.outgoing import Outgoing
from worker.traces import AttemptTrace
from worker.verdict import Drop, GiveBack, Verdict, malformed

CLOSING_S = 5.0
"""How long engines may take to abort what was stopped."""
OVER_KEPT = 4_096
"""So many attempts are remembered once they are over: a Redis that lost its last seconds may bring them back."""
FIRSTS_KEPT, FIRSTS_S = 32, 1.0
"""First tokens stand in so many and so long reports that the dispatcher, which skips some of them, sees each one."""
UNWANTED = "its worker takes nothing any more"
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
        on_change: told when one is taken, brings its first token, or is over.
    """

    def __init__(
        self,
        redis: Redis,
        shard: Shard,
        worker: str,
        clock: Clock,
        accepting: Callable[[], bool],
        on_change: Callable[[], None],
    ) -> None:
        self._redis, self._shard, self._worker = redis, shard, worker
        self._clock, self._accepting, self._on_change = clock, accepting, on_change
        self._running: dict[Key, Attempt] = {}
        self._over: OrderedDict[Key, None] = OrderedDict()
        self._firsts: deque[tuple[float, int, int]] = deque(maxlen=FIRSTS_KEPT)
        self.taken = 0
        self.idle = asyncio.Event()
        self.idle.set()

    def __len__(self) -> int:
        """How many are not over; one that has ended counts until Redis has recorded it."""
        return len(self._running)

    def serve(
        self, runner: Runner, outbox: Outbox, time_limit_s: float, prefixes: Callable[[], frozenset[str]]
    ) -> None:
        """Name the parts that attempts go through, before the first is taken; `prefixes` are those of the engine."""
        self._runner, self._outbox, self._time_limit_s = runner, outbox, time_limit_s
        self._prefixes = prefixes

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
        again = [out for out in new if (out.handle.ref, out.attempt) in self._over]
        # Its log may hold what was said before: another attempt begins at its beginning.
        self._give_back(again, "the store lost how it ended")
        new = [out for out in new if out not in again]
        if not self._accepting():
            self._give_back(new, UNWANTED)
        elif new:
            failpoints.reach("worker.before_start", new[0].handle.own_id)
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

    def spoke(self, attempt: Attempt) -> None:
        """It has brought its first token."""
        self._firsts.append((self._clock.monotonic(), attempt.out.attempt, attempt.out.first_token_after_ms))
        self._on_change()

    def figures(self, target_token_ms: float, stream_tokens: int) -> Figures:
        """What they are at; the arguments are those of `slow_share`."""
        now_s = self._clock.monotonic()
        going = [attempt for attempt in self._running.values() if not attempt.ended]
        prefilling = [attempt for attempt in going if attempt.tempo is None]
        streams = [
            Stream(attempt.tempo, attempt.started.spec.prompt_tokens)
            for attempt in going
            if attempt.tempo and attempt.started.spec.stream
        ]
        return Figures(
            fresh=sum(not attempt.on_engine for attempt in prefilling),
            prefilling=len(prefilling),
            pending_prefill_tokens=sum(attempt.uncached_tokens for attempt in prefilling),
            slow_share=slow_share(streams, now_s, target_token_ms, stream_tokens),
            firsts=tuple((number, ms) for at_s, number, ms in self._firsts if now_s - at_s < FIRSTS_S),
            taken=self.taken,
        )

    def over(self, out: Outgoing) -> None:
        """The outbox is done with an attempt, or its log can't be mended."""
        attempt = self._running.get((out.handle.ref, out.attempt))
        if attempt is None or attempt.out is not out:
            return
        if not out.over:
            attempt.stop(GiveBack(why="its token log lost frames that nobody has any more"))
            return
        attempt.stop(Drop())
        if attempt.trace:
            attempt.trace.recorded()
        del self._running[out.handle.ref, out.attempt]
        self._remember(out)
        self._on_change()
        if not self._running:
            self.idle.set()

    def _remember(self, out: Outgoing) -> None:
        self._over[out.handle.ref, out.attempt] = None
        if len(self._over) > OVER_KEPT:
            self._over.popitem(last=False)

    def _give_back(self, new: Sequence[Outgoing], why: str) -> None:
        for out in new:
            self._outbox.end(out, GiveBack(why=why))

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
                self._give_back([out], UNWANTED)
        return None

    def _run(self, out: Outgoing, started: Started) -> None:
        limit_s = started.spec.time_limit_s or self._time_limit_s
        attempt = Attempt(out, started, self._clock.monotonic(), limit_s, self._uncached_tokens(started.spec))
        # Without the times of a library that is older than we are there is nothing to tell.
        if tracing.recorded(started.spec.trace) and started.started_ms:
            attempt.trace = AttemptTrace(out, started)
        self._running[out.handle.ref, out.attempt] = attempt
        self.taken = max(self.taken, out.attempt)
        self.idle.clear()
        attempt.task = asyncio.create_task(self._runner.run(attempt))
        self._on_change()

    def _uncached_tokens(self, spec: JobSpec) -> int:
        """What the engine must compute of the prompt: less what it holds, or will hold by those that came before."""
        if not spec.prefix:
            return spec.prompt_tokens
        before = (attempt.started.spec.prefix for attempt in self._running.values() if attempt.tempo is None)
        # Hashes are chained: who differs in the first one shares none.
        coming = frozenset[str]().union(*(prefix for prefix in before if prefix[:1] == spec.prefix[:1]))
        return uncached_tokens(spec.prompt_tokens, spec.prefix, self._prefixes(), coming)
