"""Counts a gateway's answers on their way out."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from producer.gateway.metrics import Metrics

LEFT = 499
"""The client was gone before there was an answer; nginx's number for it."""
OTHER = "other"


def route_of(scope: Scope) -> str:
    """A request's path as it stands in the API page; `other` where there is none such."""
    routes: dict[object, str] = scope["app"].state.routes
    return routes.get(scope.get("endpoint"), OTHER)


class Metered:
    """An application whose answers are counted."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        """Count what `app` answers."""
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        answer = _Answer(self._metrics, scope, receive, send)
        try:
            await self._app(scope, answer.receive, answer.send)
        finally:
            answer.close()


class _Answer:
    """One answer."""

    __slots__ = ("_begun", "_left", "_metrics", "_receive", "_scope", "_send", "_stream")

    def __init__(self, metrics: Metrics, scope: Scope, receive: Receive, send: Send) -> None:
        self._metrics, self._scope, self._receive, self._send = metrics, scope, receive, send
        self._begun = self._left = False
        self._stream = ""
        """Its kind, while it is open."""

    async def receive(self) -> Message:
        """Note that the client has left."""
        message = await self._receive()
        self._left = self._left or message["type"] == "http.disconnect"
        return message

    async def send(self, message: Message) -> None:
        """Count and pass on."""
        match message["type"]:
            case "http.response.body" | "websocket.http.response.body":
                self._metrics.sent_bytes.inc(len(message.get("body", b"")))
            case "websocket.send":
                self._metrics.sent_bytes.inc(len(message.get("bytes") or (message.get("text") or "").encode()))
            case "http.response.start":
                self._begin(message["status"], "sse" if _is_stream(message) else "")
            case "websocket.http.response.start":
                self._begin(message["status"])
            case "websocket.accept":
                self._begin(101, "ws")
        await self._send(message)

    def close(self) -> None:
        """It is over."""
        if self._stream:
            self._metrics.streams.labels(self._stream).dec()
        if not self._begun:
            self._begin(LEFT)

    def _begin(self, status: int, stream: str = "") -> None:
        self._begun = True
        # What is said to nobody is no answer.
        code = LEFT if self._left else status
        self._metrics.requests.labels(route_of(self._scope), str(code)).inc()
        if stream:
            self._stream = stream
            self._metrics.streams.labels(stream).inc()


def _is_stream(message: Message) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in message["headers"])
