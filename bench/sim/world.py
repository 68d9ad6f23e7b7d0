"""Virtual time and the processes that live in it."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.sim.client import SimRedis
from bench.sim.loop import ActorLoop

if TYPE_CHECKING:
    from bench.sim.network import Network
    from bench.sim.store import Store

Main = Callable[["Actor"], Coroutine[Any, Any, None]]
LONGEST_STEP_S = 0.002
"""A command takes up to so long."""
LAST_TURNS = 200


@dataclass(eq=False)
class Actor:
    """One process.

    Attributes:
        role: `scheduler`, `worker` or `client`.
        name: role and number, then how often it was started.
        redis: its client.
        paused_until_s: SIGSTOP lasts until then.
        cut_until_s: it can't reach Redis until then.
        dead: it was killed or has ended.
    """

    role: str
    name: str
    loop: ActorLoop
    redis: SimRedis = field(init=False)
    task: asyncio.Task[None] | None = None
    paused_until_s: float = 0.0
    cut_until_s: float = 0.0
    dead: bool = False


class World:
    """Runs the processes between the events of the network.

    Attributes:
        actors: those that live.
        crashes: what ended a process that should not have ended.
    """

    def __init__(self, store: "Store") -> None:
        self._store = store
        self._buried: list[Actor] = []
        self._hurry_s = 0.0
        self.actors: list[Actor] = []
        self.crashes: list[str] = []
        self.network: Network

    @property
    def now_s(self) -> float:
        """The time of every process's monotonic clock."""
        return self._store.elapsed_s + self._hurry_s

    def spawn(self, role: str, name: str, main: Main) -> Actor:
        """Start a process."""
        actor = Actor(role, name, ActorLoop(lambda: self.now_s))
        actor.redis = SimRedis(self.network, actor)
        actor.loop.set_exception_handler(lambda _, context: self._crashed(actor, context))
        self.actors.append(actor)
        actor.task = actor.loop.create_task(main(actor))
        actor.task.add_done_callback(lambda task: self._ended(actor, task))
        return actor

    def kill(self, actor: Actor) -> None:
        """SIGKILL: nothing of it runs any more."""
        actor.dead = True
        self.actors.remove(actor)
        self._buried.append(actor)
        self.network.bury(actor)

    def step(self, until_s: float) -> None:
        """Let one thing happen, or time pass until the next one can; not beyond `until_s`."""
        now_s = self._store.elapsed_s
        for actor in tuple(self.actors):
            if not actor.dead and actor.paused_until_s <= now_s and actor.loop.has_work(now_s):
                actor.loop.turn()
        if self.network.step():
            self._store.elapsed_s += LONGEST_STEP_S * self.network.chance.random()
        else:
            self._store.elapsed_s = max(self._store.elapsed_s, min([until_s, *self._moments()]))

    def close(self) -> None:
        """End whatever still runs, also in processes that were killed: their tasks are cancelled and come to an end."""
        for actor in tuple(self.actors):
            self.kill(actor)
        for actor in self._buried:
            self._put_to_rest(actor)

    def _put_to_rest(self, actor: Actor) -> None:
        for _ in range(LAST_TURNS):
            tasks = [task for task in asyncio.all_tasks(actor.loop) if not task.done()]
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            actor.loop.turn()
            self.network.refuse(actor)
            self._hurry_s += 1.0
        actor.loop.close()

    def _moments(self) -> list[float]:
        """When something happens next: a timer fires, a pause ends, a reply is given up."""
        moments = [] if (at := self.network.next_s()) is None else [at]
        for actor in self.actors:
            if actor.paused_until_s > self._store.elapsed_s:
                moments.append(actor.paused_until_s)
            elif (timer := actor.loop.next_timer()) is not None:
                moments.append(timer)
        return moments

    def _ended(self, actor: Actor, task: asyncio.Task[None]) -> None:
        if actor.dead:
            if not task.cancelled():
                task.exception()
            return
        actor.dead = True
        self.actors.remove(actor)
        self._buried.append(actor)
        if not task.cancelled() and (error := task.exception()):
            self.crashes.append(f"{actor.name} ended with {error!r}")

    def _crashed(self, actor: Actor, context: dict[str, Any]) -> None:
        if not actor.dead:
            self.crashes.append(f"{actor.name}: {context.get('message')} {context.get('exception')!r}")
