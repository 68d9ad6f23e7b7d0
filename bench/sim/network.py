"""What is on its way between the processes and Redis: commands to be carried out, replies to arrive.

The chooser picks one of all that could happen next, so any two processes' commands may come in either order.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, Protocol

from redis.exceptions import ConnectionError as StoreConnectionError
from redis.exceptions import TimeoutError as StoreTimeoutError

from bench.sim.client import SimPubSub
from bench.sim.store import Connection, Store
from bench.sim.world import Actor
from protocol.call import Arg
from protocol.store import ANSWER_TIMEOUT_S

LONGEST_ON_THE_WAY_S = 6.0
"""So long a command may be on its way, in buffers and proxies."""
Fate = Literal["", "lost", "unheard", "broken", "doubled", "late"]
"""`lost`: never carried out; `unheard`: carried out, its reply lost; `broken`: a part of it was carried out; `doubled`:
carried out twice, as by a client that repeats by itself; `late`: carried out after seconds."""


class Watcher(Protocol):
    """Looks at each command once it was carried out."""

    def after(self, actor: Actor, command: Sequence[Arg], reply: object) -> set[str]:
        """Check the rules; yields the keys that changed."""
        ...


@dataclass(eq=False, slots=True)
class Request:
    """The commands that one call sends over one connection."""

    actor: Actor
    commands: Sequence[Sequence[Arg]]
    answered: asyncio.Future[list[Any]]
    socket: Connection
    subscribes: bool
    fate: Fate
    not_before_s: float
    gives_up_s: float
    stops_at: int
    replies: list[Any] = field(default_factory=list)
    error: Exception | None = None
    reading: str = ""
    """The stream that a blocking read waits for; empty while it does not wait."""
    reads_until_s: float = 0.0


class Network:
    """All connections to one Redis.

    Attributes:
        chance: what chooses.
        pubsubs: connections that subscribe.
        trace: (time, process, command, reply) of all that was carried out.
        calls: how many functions were called.
        away_until_s: connections are refused until then.
        stopped_until_s: Redis is frozen until then.
    """

    def __init__(self, store: Store, chance: Random, watcher: Watcher, fates: "Fates") -> None:
        self._store, self._watcher, self._fates = store, watcher, fates
        self.chance = chance
        self._waiting: list[Request] = []
        self._answered: list[Request] = []
        self._idle: list[Connection] = []
        self.pubsubs: list[SimPubSub] = []
        self.trace: list[tuple[float, str, Sequence[Arg], object]] = []
        self.calls = 0
        self.away_until_s = self.stopped_until_s = 0.0

    def note(self, what: str) -> None:
        """Put a line into the trace."""
        self.trace.append((self._store.elapsed_s, what, (), None))

    def connect(self) -> Connection:
        """A connection for one subscriber."""
        return self._store.socket()

    async def ask(self, actor: Actor, commands: Sequence[Sequence[Arg]], socket: Connection | None = None) -> list[Any]:
        """Send commands and wait for their replies.

        Raises:
            redis.ConnectionError, redis.TimeoutError: any part of them may have been carried out.
        """
        now_s = self._store.elapsed_s
        fate = self._fates.fate(commands)
        request = Request(
            actor=actor,
            commands=commands,
            answered=actor.loop.create_future(),
            socket=socket or (self._idle.pop() if self._idle else self._store.socket()),
            subscribes=socket is not None,
            fate=fate,
            not_before_s=now_s + (self.chance.uniform(0.5, LONGEST_ON_THE_WAY_S) if fate == "late" else 0.0),
            gives_up_s=now_s + ANSWER_TIMEOUT_S,
            stops_at=self.chance.randrange(len(commands)) if fate == "broken" else len(commands),
        )
        if now_s < self.away_until_s or actor.dead:
            self._fail(request, StoreConnectionError("connection refused"))
        elif now_s < actor.cut_until_s:
            request.fate = "lost"
            request.not_before_s = now_s + self.chance.uniform(0.0, ANSWER_TIMEOUT_S)
            self._waiting.append(request)
        else:
            self._waiting.append(request)
        return await request.answered

    def step(self) -> bool:
        """Let one thing happen; False when nothing can before time passes."""
        now_s = self._store.elapsed_s
        for request in [each for each in self._waiting if each.gives_up_s <= now_s and not each.error]:
            self._fail(request, StoreTimeoutError("Timeout reading from socket"))
        can_run = [] if now_s < self.stopped_until_s else [each for each in self._waiting if self._can_run(each, now_s)]
        heard = [pubsub for pubsub in self.pubsubs if pubsub.socket.messages]
        total = len(can_run) + len(self._answered) + len(heard)
        if not total:
            return False
        at = self.chance.randrange(total)
        if at < len(can_run):
            self._carry_on(can_run[at])
        elif (at := at - len(can_run)) < len(self._answered):
            self._deliver(self._answered.pop(at))
        else:
            pubsub = heard[at - len(self._answered)]
            pubsub.actor.loop.call_soon(pubsub.hear, pubsub.socket.messages.popleft())
        return True

    def next_s(self) -> float | None:
        """When something can happen that can't now; None when only new commands help."""
        moments = [request.gives_up_s for request in self._waiting if not request.error]
        moments += [request.not_before_s for request in self._waiting]
        moments += [request.reads_until_s for request in self._waiting if request.reading]
        now_s = self._store.elapsed_s
        if now_s < self.stopped_until_s:
            moments.append(self.stopped_until_s)
        return min((moment for moment in moments if moment > now_s), default=None)

    def break_all(self, actor: Actor | None = None) -> None:
        """Cut every connection, or all of one process: what was not carried out never will be."""
        gone = [request for request in self._waiting if actor in (None, request.actor)]
        for request in gone:
            self._waiting.remove(request)
            self._fail(request, StoreConnectionError("Connection closed by server."))
        for request in self._answered:
            if actor in (None, request.actor):
                request.error = request.error or StoreConnectionError("Connection closed by server.")
        for pubsub in [each for each in self.pubsubs if actor in (None, each.actor)]:
            pubsub.close()

    def bury(self, actor: Actor) -> None:
        """A process died: what it had sent may still be carried out, even much later; nobody hears the replies."""
        for request in [each for each in self._waiting if each.actor is actor]:
            if request.reading or self.chance.random() < 0.3:
                self._waiting.remove(request)
            else:
                request.not_before_s += self.chance.choice((0.0, self.chance.uniform(0.0, LONGEST_ON_THE_WAY_S)))
        for pubsub in [each for each in self.pubsubs if each.actor is actor]:
            pubsub.close()

    def refuse(self, actor: Actor) -> None:
        """Answer all that a dead process waits for with an error, for its tasks to end."""
        for request in [each for each in (*self._waiting, *self._answered) if each.actor is actor]:
            request.error = request.error or StoreConnectionError("connection refused")
            self._resolve(request)
        self._waiting = [each for each in self._waiting if each.actor is not actor]
        self._answered = [each for each in self._answered if each.actor is not actor]

    def _can_run(self, request: Request, now_s: float) -> bool:
        if request.reading:
            if request.answered.done():
                return True
            return request.reads_until_s <= now_s
        return request.not_before_s <= now_s

    def _carry_on(self, request: Request) -> None:
        """Carry out the next command of a request."""
        if request.fate == "lost" or (request.reading and request.answered.done()):
            self._waiting.remove(request)
            self._fail(request, StoreConnectionError("Connection lost"))
            return
        if len(request.replies) == request.stops_at:
            self._waiting.remove(request)
            self._fail(request, StoreConnectionError("Connection reset by peer"))
            return
        command = request.commands[len(request.replies)]
        reply = self._do(request, command)
        if reply is None and request.reading:
            return
        request.replies.append(reply)
        if len(request.replies) == len(request.commands):
            self._done(request)

    def _do(self, request: Request, command: Sequence[Arg]) -> object:
        blocking, waited = "BLOCK" in command, bool(request.reading)
        if blocking:
            at = command.index("BLOCK")
            reply = self._store.do(request.socket, [*command[:at], *command[at + 2 :]])
            reply = reply or None
            if reply is None and not waited:
                request.reading = str(command[command.index("STREAMS") + 1])
                request.reads_until_s = self._store.elapsed_s + int(command[at + 1]) / 1000
            else:
                request.reading = ""
            if reply is not None:
                self._note(request, command, reply)
            return reply
        if request.subscribes:
            self._store.send(request.socket, command)
            reply = True
        else:
            reply = self._store.do(request.socket, command)
        self._note(request, command, reply)
        return reply

    def _note(self, request: Request, command: Sequence[Arg], reply: object) -> None:
        self.trace.append((self._store.elapsed_s, request.actor.name, command, reply))
        self.calls += command[0] == "FCALL"
        changed = self._watcher.after(request.actor, command, reply)
        if changed:
            for waiting in self._waiting:
                if waiting.reading in changed:
                    waiting.reads_until_s = 0.0

    def _done(self, request: Request) -> None:
        if request.fate == "doubled":
            request.fate = ""
            request.replies.clear()
            return
        self._waiting.remove(request)
        if not request.subscribes:
            self._idle.append(request.socket)
        if request.fate == "unheard":
            self._fail(request, StoreConnectionError("Connection reset by peer"))
        elif not request.error:
            self._answered.append(request)

    def _fail(self, request: Request, error: Exception) -> None:
        if not request.error:
            request.error = error
            self._answered.append(request)

    def _deliver(self, request: Request) -> None:
        request.actor.loop.call_soon(self._resolve, request)

    @staticmethod
    def _resolve(request: Request) -> None:
        if request.answered.done():
            return
        if request.error:
            request.answered.set_exception(request.error)
        else:
            request.answered.set_result(request.replies)


class Fates(Protocol):
    """Decides what becomes of each request."""

    def fate(self, commands: Sequence[Sequence[Arg]]) -> Fate:
        """Of one request."""
        ...
