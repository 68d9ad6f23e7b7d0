"""`/v1/requests/{id}/ws`: what the event stream tells, over a WebSocket."""

from collections.abc import Sequence
from contextlib import suppress

from starlette.websockets import WebSocket, WebSocketDisconnect

from producer.gateway.answers import failed
from producer.gateway.failures import failure_of
from producer.gateway.jobs import follower
from producer.gateway.relay import DONE, Message, Relay
from producer.gateway.state import SUBPROTOCOL, Gateway, gateway_of, known
from producer.gateway.stays import Ended
from producer.gateway.streaming import Follower, told
from protocol import wire
from protocol.errors import FleetError
from protocol.handle import Handle

GOING_AWAY = 1001
CANCEL = {"type": "cancel"}


async def serve(socket: WebSocket) -> None:
    """Follow one job; the client may send `{"type": "cancel"}`. Refusals come before the WebSocket begins, as HTTP."""
    try:
        gateway = gateway_of(socket)
        grant = await gateway.admit(socket)
        gateway.check_open()
        handle = known(grant, socket.path_params["id"])
        client = await follower(gateway, handle, socket.query_params.get("after", ""))
    except FleetError as error:
        await socket.send_denial_response(failed(failure_of(error)))
        return
    offered = socket.scope["subprotocols"]
    await socket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
    # A client that is gone has closed it already.
    with suppress(WebSocketDisconnect, RuntimeError):
        await socket.close(await _relayed(socket, gateway, client))


async def _relayed(socket: WebSocket, gateway: Gateway, client: Follower) -> int:
    """Relay until the end; the code to close with."""
    relay = client.relay
    try:
        async with gateway.stays.of(relay.handle, lambda: _listen(socket, gateway, relay.handle)):
            await _relay(socket, gateway, relay)
    except Ended as why:
        if why.reason == "closing":
            await _tell(socket, relay.closing())
            return GOING_AWAY
        gateway.leavings.note(relay.handle, client.unfollowed_s)
    except FleetError as error:
        await _tell(socket, relay.broken(failure_of(error)))
    return 1000


async def _relay(socket: WebSocket, gateway: Gateway, relay: Relay) -> None:
    async for _, messages in told(gateway, relay):
        await _tell(socket, messages)


async def _listen(socket: WebSocket, gateway: Gateway, handle: Handle) -> None:
    """Hear the client until it leaves."""
    while (message := await socket.receive())["type"] != "websocket.disconnect":
        with suppress(FleetError):
            if wire.loads(message.get("text") or message.get("bytes") or b"null") == CANCEL:
                await gateway.fleet.cancel(handle)


async def _tell(socket: WebSocket, messages: Sequence[Message]) -> None:
    for message in messages:
        name = b"done" if message.data == DONE else message.name.encode() or b"chunk"
        data = b"null" if message.data == DONE else message.data
        text = b'{"id":"%b","event":"%b","data":%b}' % (message.id.encode(), name, data)
        await socket.send_text(text.decode())
