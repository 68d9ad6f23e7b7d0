"""What a simulated process has for a Redis client: the part of redis-py's that the product uses."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redis.exceptions import ConnectionError as StoreConnectionError

from protocol.call import Arg

if TYPE_CHECKING:
    from bench.sim.network import Network
    from bench.sim.store import Connection
    from bench.sim.world import Actor


class SimRedis:
    """The asyncio client of one process; each call takes a connection of its own, as from a pool."""

    def __init__(self, network: "Network", actor: "Actor") -> None:
        self._network, self._actor = network, actor

    async def execute_command(self, *command: Arg) -> Any:  # noqa: ANN401 - a reply has any type
        """One command and its reply."""
        (reply,) = await self._network.ask(self._actor, [command])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def pipeline(self, *, transaction: bool = True) -> "SimPipeline":
        """Gathers commands; without a transaction those of others may come in between."""
        if transaction:
            raise NotImplementedError("the product uses no transactions")
        return SimPipeline(self._network, self._actor)

    def pubsub(self) -> "SimPubSub":
        """A connection to subscribe on."""
        return SimPubSub(self._network, self._actor)

    async def aclose(self) -> None:
        """Nothing to close."""


class SimPipeline:
    """Commands that go out together on one connection."""

    def __init__(self, network: "Network", actor: "Actor") -> None:
        self._network, self._actor = network, actor
        self._commands: list[Sequence[Arg]] = []

    def execute_command(self, *command: Arg) -> None:
        """One more."""
        self._commands.append(command)

    async def execute(self, *, raise_on_error: bool = True) -> list[Any]:
        """All replies; an error of Redis stands in its place."""
        if raise_on_error:
            raise NotImplementedError("the product looks at each reply")
        return await self._network.ask(self._actor, self._commands) if self._commands else []


class SimPubSub:
    """One subscribing connection.

    Attributes:
        actor: whose it is.
        socket: where Redis puts the messages.
    """

    def __init__(self, network: "Network", actor: "Actor") -> None:
        self._network, self.actor = network, actor
        self.socket: Connection = network.connect()
        self._heard: deque[bytes | list[Any]] = deque()
        self._news = asyncio.Event()
        self._broken = False
        network.pubsubs.append(self)

    async def subscribe(self, *channels: str) -> None:
        """Hear these; a message confirms each."""
        await self._send("SUBSCRIBE", *channels)

    async def unsubscribe(self, *channels: str) -> None:
        """Hear these no more."""
        await self._send("UNSUBSCRIBE", *channels)

    async def ping(self) -> None:
        """Ask for a sign of life."""
        await self._send("PING")

    async def get_message(self, timeout: float) -> dict[str, Any] | None:
        """The next message; None when there is none for `timeout` seconds.

        Raises:
            redis.ConnectionError: the connection broke.
        """
        if not self._heard and not self._broken:
            try:
                async with asyncio.timeout(timeout):
                    await self._news.wait()
            except TimeoutError:
                return None
        if not self._heard:
            raise StoreConnectionError("the connection broke")
        message = self._heard.popleft()
        if not self._heard and not self._broken:
            self._news.clear()
        # Redis answers a ping of who subscribes to nothing with one word.
        kind, *rest = message if isinstance(message, list) else [message]
        return {"type": kind.decode(), "channel": rest[0] if rest else None, "data": rest[-1] if rest else None}

    async def aclose(self) -> None:
        """Close the connection."""
        self.close()

    def hear(self, message: bytes | list[Any]) -> None:
        """A message arrives."""
        self._heard.append(message)
        self._news.set()

    def close(self) -> None:
        """Cut it; what had not arrived is lost."""
        if not self._broken:
            self._broken = True
            self._network.pubsubs.remove(self)
            self.socket.kill()
            self._news.set()

    async def _send(self, *command: Arg) -> None:
        if self._broken:
            raise StoreConnectionError("the connection broke")
        await self._network.ask(self.actor, [command], self.socket)
