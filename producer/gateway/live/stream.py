"""`GET /fleet/events`: looks at the fleet as server-sent events, each viewer at its own speed."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from producer.gateway.live.look import Look
from producer.gateway.outlet import HEADERS, encoded
from producer.gateway.relay import Message
from producer.gateway.state import gateway_of
from protocol.errors import FleetError
from protocol.wire import dumps


async def events(request: Request) -> Response:
    """First a whole look, named `look` as those after it, which tell what changed; `away` while Redis is.

    Raises:
        FleetError: the key is not known, or the gateway closes.
    """
    gateway = gateway_of(request)
    await gateway.admit(request)
    gateway.check_open()
    return StreamingResponse(_told(request), headers=HEADERS)


async def _told(request: Request) -> AsyncIterator[bytes]:
    """Ends when the key is good no more, and when the gateway closes: the page comes again, and is told why."""
    gateway = gateway_of(request)
    before: Look | None = None
    async with aclosing(gateway.watch.looks()) as looks:
        async for look in looks:
            if not isinstance(look, Look):
                yield encoded(Message(dumps({"message": look.why}), name="away"))
                continue
            try:
                scope = (await gateway.admit(request)).sight
            except FleetError:
                return
            told = look.since(before, scope) if before else look.whole(scope, gateway.watch.history)
            before = look
            # Taken once the viewer has taken what came before: a slow one gets fewer looks, and none is kept for it.
            yield encoded(Message(told, name="look"))
