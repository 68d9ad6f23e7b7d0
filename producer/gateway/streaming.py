"""Answers as a stream of events, relayed while their client stays."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from producer.events import End, Event, Tokens
from producer.gateway import failures
from producer.gateway.answers import REQUEST_ID, ended, failed, succeeded
from producer.gateway.metered import route_of
from producer.gateway.outlet import Outlet
from producer.gateway.relay import Message, Relay
from producer.gateway.state import Gateway
from producer.gateway.stays import Ended
from protocol.errors import FleetError


@dataclass(frozen=True, slots=True)
class Follower:
    """A client that follows one job."""

    relay: Relay
    unfollowed_s: float | None
    """After how long the job is cancelled once nobody follows it."""
    new: bool = False
    """The job was created just now."""


async def told(
    gateway: Gateway, relay: Relay, *, new: bool = False
) -> AsyncGenerator[tuple[Event, Sequence[Message]], None]:
    """What happens to a job, with the client's messages of it, until nothing follows.

    Raises (while iterating):
        FleetError: the job is not there, or can't be followed.
    """
    async with aclosing(gateway.fleet.follow(relay.handle, relay.cursor.after, new=new)) as events:
        async for event in events:
            if relay.place:
                # It has said something: who waits for a first token goes ahead.
                await gateway.turns.wait()
            yield event, relay.take(event)
            if relay.over:
                return


class EventStream(Response):
    """Server-sent events. What goes wrong before the first of them is a plain answer with its status."""

    def __init__(
        self,
        gateway: Gateway,
        follower: Follower,
        headers: Mapping[str, str] | None = None,
        asked_s: float | None = None,
    ) -> None:
        """Follow once it is called; `asked_s` is when a new request came, by `perf_counter`."""
        self.gateway, self.follower = gateway, follower
        self._asked_s = asked_s
        self.request_headers = {REQUEST_ID: str(follower.relay.handle), **(headers or {})}
        self._route = ""
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        self._route = route_of(scope)
        gateway, relay = self.gateway, self.follower.relay
        outlet, plain = Outlet(send, gateway.options.pace, self.request_headers), None
        try:
            async with gateway.stays.of(relay.handle, gone):
                plain = await self._relay(outlet)
        except Ended as why:
            if why.reason == "left" or not outlet.begun:
                gateway.leavings.note(relay.handle, self.follower.unfollowed_s)
            if why.reason == "closing" and outlet.begun:
                await outlet.write(relay.closing(), last=True)
            elif why.reason == "closing":
                # Nothing was said yet: the client may begin anew elsewhere.
                plain = failed(failures.failure_of(failures.closing_down()), self.request_headers)
        finally:
            outlet.close()
        if plain:
            await plain(scope, receive, send)

    async def _relay(self, outlet: Outlet) -> Response | None:
        """Relay all; an answer that takes the place of the stream, where nothing of that was sent yet."""
        relay = self.follower.relay
        try:
            async with aclosing(told(self.gateway, relay, new=self.follower.new)) as events:
                async for event, messages in events:
                    if isinstance(event, End) and not outlet.begun and self._has_failed(event):
                        return ended(event.outcome, self.request_headers)
                    await outlet.write(messages, last=relay.over)
                    self._count(event)
        except FleetError as error:
            failure = failures.failure_of(error)
            if not outlet.begun:
                return failed(failure)
            await outlet.write(relay.broken(failure), last=True)
        return None

    def _count(self, event: Event) -> None:
        if isinstance(event, Tokens) and self._asked_s is not None:
            self.gateway.metrics.first_token(self._route, perf_counter() - self._asked_s)
            self._asked_s = None
        elif isinstance(event, End):
            self.gateway.metrics.ended(event.outcome)

    def _has_failed(self, end: End) -> bool:
        """Who follows a job anew is told of its failure as an event: the following itself did not fail."""
        return self.follower.relay.style == "openai" and not succeeded(end.outcome)
