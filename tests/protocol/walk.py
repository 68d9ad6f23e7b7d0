"""A random walk over the function library: two dispatchers, three workers and the ghosts of dead ones, users, time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from redis import Redis

from protocol import functions, keys, library, reads
from protocol.call import Call, T, run_sync
from protocol.errors import ConflictingId, QueueFull, UnknownJob
from protocol.functions import Beat, Move, Submission, TickTimes
from protocol.handle import Handle
from protocol.limits import Bucket, Limits
from protocol.messages import InboxEntry, LoadReport
from protocol.states import Priority, State
from tests.protocol.rules import Rules
from tests.support import snapshot
from tests.support.builders import BODY, SHARD, SPEC, a_handle, a_submission, completed, join_worker, tick_as
from tests.support.store_clock import StoreClock

IDS = ("j1", "j2", "j3", "j4", "j5")
TENANTS = ("red", "blue")
BOSSES = ("boss", "standby")
TIMES = TickTimes(lead_ms=2_000, lease_ms=3_000, gap_ms=2_500)
LIMITS = dict.fromkeys(Priority, 6)
WORKERS, GHOSTS, SLOTS = 3, 3, 3
BUCKETS = (
    Bucket("wide", Limits(requests_a_minute=60, tokens_a_minute=3_000)),
    Bucket("tight", Limits(requests_a_minute=6, tokens_a_minute=400, jobs=2, bytes=2 * len(BODY))),
)
USAGES = (None, {"prompt_tokens": 11, "completion_tokens": 3}, {"prompt_tokens": 11, "completion_tokens": 6_000})


class Broken(AssertionError):
    """A rule was broken; the message has the seed and the way there."""


@dataclass
class Life:
    """One worker process. A ghost does not beat, but sends what it still believes to run."""

    id: str
    ghost: bool = False
    believes: dict[tuple[str, int], int] = field(default_factory=dict)
    """(ref, attempt) → frames emitted."""


class Walk:
    """One walk. Each step is a function call or a few, or time passing; the rules are checked after each."""

    def __init__(self, redis: Redis, clock: StoreClock, chance: Random, name: str) -> None:
        self._redis, self._clock, self._random = redis, clock, chance
        self._lives: list[Life] = []
        self._born = self._nonces = 0
        self._submitted: dict[str, Submission] = {}
        self._answered: dict[str, set[str]] = {}
        """Nonces that were answered while their job was known."""
        self._history = [name]
        self.rules = Rules(lambda: snapshot.take(redis))
        self._weights: dict[Callable[[], object], int] = {
            self.submit: 10,
            self.submit_the_last_again: 3,
            self.cancel: 4,
            self.forget: 2,
            self.tick: 12,
            self.assign: 14,
            self.beat: 10,
            self.read_inbox: 14,
            self.start_again: 4,
            self.emit: 8,
            self.finish: 7,
            self.requeue: 7,
            self.leave: 1,
            self.die: 2,
            self.time_passes: 6,
        }

    def run(self, steps: int) -> None:
        """Walk so many steps; raises `Broken`."""
        for _ in range(steps):
            (step,) = self._random.choices(list(self._weights), list(self._weights.values()))
            self.take(step)
        while self.rules.living():
            self.take(self.end_one)

    def take(self, step: Callable[[], object]) -> None:
        """Take one step, and check; raises `Broken`."""
        self._fill_up()
        self._history.append(step.__name__)
        try:
            step()
        except (ConflictingId, QueueFull, UnknownJob) as refusal:
            self._history.append(f"    → {refusal.code}")
        except Broken:
            raise
        except Exception as error:
            raise self._broken(repr(error)) from error
        if found := self.rules.broken():
            raise self._broken("\n".join(found))

    def _do(self, call: Call[T]) -> T:
        answer = run_sync(self._redis, call)
        if call.command[0] == "FCALL":
            name, arguments = str(call.command[1]), call.command[3 + int(call.command[2]) :]
            self._history.append(f"    {name} {arguments} → {answer}")
        return answer

    def _broken(self, what: str) -> Broken:
        return Broken("\n".join([*self._history, what]))

    # Users.

    def _any_handle(self) -> Handle:
        return a_handle(self._random.choice(IDS), self._random.choice(TENANTS))

    def submit(self) -> None:
        handle = self._any_handle()
        self._nonces += 1
        self._submitted[handle.ref] = a_submission(
            handle.own_id,
            tenant=handle.tenant,
            priority=self._random.choice(list(Priority)),
            digest=self._random.choice(["digest", "digest", "other"]),
            nonce=f"n{self._nonces}",
            delay_ms=self._random.choice([0, 1_500]),
            deadline_ms=self._random.choice([3_000, 60_000]),
            reply_to=self._random.choice(["", "me"]),
            failure_stays=self._random.random() < 0.5,
            bucket=self._random.choice([None, *BUCKETS]),
            spec=self._random.choice([SPEC, SPEC, SPEC.model_copy(update={"stream": False})]),
        )
        self._offer(self._submitted[handle.ref])

    def submit_the_last_again(self) -> None:
        """As a client does whose reply was lost."""
        job = self._random.choice(list(self._submitted.values()) or [a_submission()])
        self._offer(job)

    def _offer(self, job: Submission) -> None:
        ref = job.handle.ref
        answered = self._answered.setdefault(ref, set())
        if ref not in self.rules.jobs:
            answered.clear()
        stays = job.failure_stays and self.rules.failed(job)
        created = self._do(functions.submit(job)).created
        if created and job.nonce in answered:
            raise self._broken("a repeated submit began a second run")
        if created and stays:
            raise self._broken("a failure that was to stay ran anew")
        answered.add(job.nonce)

    def cancel(self) -> None:
        self._do(functions.cancel(self._any_handle()))

    def end_one(self) -> None:
        """In the end, so that nothing is left of any job."""
        self._do(functions.cancel(Handle.of(SHARD, self.rules.living()[0])))

    def forget(self) -> None:
        handle = self._any_handle()
        attempt = self.rules.attempt(handle.ref)
        named = self._random.choice([attempt, attempt, attempt - 1])
        if self._do(functions.forget(handle, named)) and handle.ref in self.rules.jobs and named != attempt:
            raise self._broken("another run was forgotten")

    # Dispatchers.

    def _boss(self) -> str:
        """Mostly the one that leads."""
        return self._random.choice([*BOSSES, *[self.rules.leader or BOSSES[0]] * 6])

    def tick(self) -> None:
        self._do(tick_as(self._boss(), times=TIMES, limits=LIMITS, recall=self._random.random() < 0.5))

    def assign(self) -> None:
        entries = [e for priority in Priority for e in run_sync(self._redis, reads.lane_head(SHARD, priority, 9))]
        chosen = self._random.choices(entries, k=self._random.randint(1, 3)) if entries else []
        workers = [life.id for life in self._lives]
        moves = [Move(entry.member, self._random.choice(workers)) for entry in chosen]
        if moves and self._random.random() < 0.2:
            park_ms = self._random.choice([0, 0, 1_000, 1_000, 1_000])
            refuse_ms = 0 if park_ms else self._random.choice([0, 700])
            moves[0] = Move(moves[0].member, "", park_ms, refuse_ms, late=self._random.random() < 0.5)
        boss, now, leases = self._boss(), self._do(reads.store_time_ms()), self._do(reads.leases(SHARD))
        answers = self._do(functions.assign(SHARD, boss, moves))
        if answers is not None and boss != self.rules.leader:
            raise self._broken("a dispatcher assigned without the lead")
        for move, answer in zip(moves, answers or [], strict=False):
            if isinstance(answer, int) and leases.get(move.worker, 0) <= now:
                raise self._broken(f"{move.worker} got a job and has no lease")

    # Workers.

    def _fill_up(self) -> None:
        """New lives for those that ended; only the last ghosts are still about."""
        ghosts = [life for life in self._lives if life.ghost][-GHOSTS:]
        self._lives = ghosts + [life for life in self._lives if not life.ghost]
        while len(self._lives) < len(ghosts) + WORKERS:
            self._born += 1
            self._lives.append(Life(f"w{self._born}"))
            self._do(join_worker(self._lives[-1].id, SLOTS, lease_ms=TIMES.lease_ms))

    def _alive(self) -> Life:
        return self._random.choice([life for life in self._lives if not life.ghost])

    def beat(self) -> None:
        for life in self._lives:
            if not life.ghost:
                life.ghost = self._do(join_worker(life.id, SLOTS, lease_ms=TIMES.lease_ms, join=False)) is None

    def read_inbox(self) -> None:
        for life in self._random.sample(self._lives, 3):
            # A blocking read of an empty inbox would wait for the server's next look at its clock.
            if self._redis.exists(keys.inbox(SHARD, life.id)):
                for entry in run_sync(self._redis, reads.inbox_after(SHARD, life.id, "0", 1)):
                    self._take_entry(life, entry)

    def _take_entry(self, life: Life, entry: InboxEntry) -> None:
        work = entry.ref, entry.attempt
        if entry.kind == "abort":
            life.believes.pop(work, None)
            done = (entry.entry_id,)
            beat = Beat(life.id, life.id, "active", SLOTS, TIMES.lease_ms, LoadReport(), acknowledged=done)
            self._do(functions.beat(SHARD, beat))
        elif self._random.random() < 0.4 or self._do(functions.start(Handle.of(SHARD, entry.ref), work[1], life.id)):
            # Without a start it is a worker whose engine refused the request before it looked at it.
            life.believes.setdefault(work, 0)

    def _work(self) -> tuple[Life, Handle, int]:
        """Something that some life, perhaps a ghost, believes to run; mostly rightly."""
        busy = [(life, *work) for life in self._lives for work in life.believes]
        if self._random.random() < 0.7:
            busy = [work for work in busy if self.rules.holds(work[1], work[2], work[0].id)] or busy
        life, ref, attempt = self._random.choice(busy or [(self._lives[0], "red:j1", 1)])
        if self._random.random() < 0.1:
            # A number that another worker holds too, as after a loss of Redis's last second.
            life = self._random.choice(self._lives)
        life.believes.setdefault((ref, attempt), 0)
        return life, Handle.of(SHARD, ref), attempt

    def start_again(self) -> None:
        life, handle, attempt = self._work()
        if self._do(functions.start(handle, attempt, life.id)):
            self._must_hold(life, handle, attempt)

    def emit(self) -> None:
        life, handle, attempt = self._work()
        seq = max(1, life.believes[handle.ref, attempt] + self._random.choice([1, 1, 1, 0, 2]))
        last = self._do(functions.emit(handle, attempt, life.id, seq, [{}]))
        if last != functions.STALE:
            life.believes[handle.ref, attempt] = last
            self._must_hold(life, handle, attempt)

    def finish(self) -> None:
        life, handle, attempt = self._work()
        state = self._random.choice([State.COMPLETED, State.FAILED])
        end = completed(
            handle, attempt, life.id, life.believes[handle.ref, attempt], state, self._random.choice(USAGES)
        )
        if self._do(functions.finish(end)).accepted and not self.rules.recorded(handle.ref, attempt):
            self._must_hold(life, handle, attempt)

    def requeue(self) -> None:
        life, handle, attempt = self._work()
        fault: functions.Fault = self._random.choice(["none", "try", "strike", "strike", "strike"])
        delay_ms = self._random.choice([0, 1_000])
        if self._do(functions.requeue(handle, attempt, life.id, fault, delay_ms)) != "stale":
            self._must_hold(life, handle, attempt)

    def _must_hold(self, life: Life, handle: Handle, attempt: int) -> None:
        if not self.rules.holds(handle.ref, attempt, life.id):
            raise self._broken(f"{life.id} was heard for attempt {attempt}, but: {self.rules.jobs.get(handle.ref)}")

    def leave(self) -> None:
        life = self._alive()
        life.ghost = self._do(functions.leave(SHARD, life.id))

    def die(self) -> None:
        self._alive().ghost = True

    # Redis.

    def clock_jumps(self) -> None:
        self._clock.advance(self._random.choice([3_600_000, -3_600_000]))

    def functions_are_flushed(self) -> None:
        """And loaded again, as the scheduler does; what they kept in the server's memory is gone."""
        self._do(Call(("FUNCTION", "FLUSH"), bool))
        self._do(Call(("FUNCTION", "LOAD", library.source()), bool))

    def server_restarts(self) -> None:
        """All is read back from its file, functions too; what they kept in memory is gone. Real servers only."""
        self._do(Call(("DEBUG", "RELOAD"), bool))

    def time_passes(self) -> None:
        ms = self._random.choice([100, 500, 1_000, 1_000, 2_000, 10_000, -5_000])
        self._history.append(f"    {ms} ms")
        self._clock.advance(ms)
