"""The gateway as an ASGI application, with its OpenAPI page."""

import traceback
from functools import partial
from http import HTTPStatus
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from producer.gateway import batches, catalogue, description, files, inference, jobs, socket
from producer.gateway.answers import REQUEST_ID, failed
from producer.gateway.failures import RETRY_AFTER, SlowBody, failure_of, other_status
from producer.gateway.live import life, page, stream
from producer.gateway.ratelimits import RATE_LIMITS
from producer.gateway.reading import ClientDisconnect
from producer.gateway.state import Gateway, gateway_of
from protocol.errors import FleetError, InvalidId
from protocol.log import get_logger
from protocol.messages import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
SHOWN = (REQUEST_ID, RETRY_AFTER, *RATE_LIMITS)
"""Headers of answers that web pages of other origins may read."""
_log = get_logger("gateway")
_NO_TELEMETRY = TelemetryConfig(tracing=False, metrics=False, logs=False, auto_configure=False)
"""FastAPI's own would begin a trace for each request that has none, and export errors whose texts quote requests."""


def application(gateway: Gateway) -> FastAPI:
    """All of its paths."""
    app = FastAPI(
        title="tokenfleet", version=version("tokenfleet"), description=description.ABOUT, telemetry=_NO_TELEMETRY
    )
    app.state.gateway = gateway
    # Plain routes: bodies are read and checked by our own rules, so FastAPI's would only cost time and memory.
    for endpoint in ENDPOINTS:
        app.add_route(endpoint, partial(inference.infer, endpoint=endpoint), ["POST"])
    for path, look in _LOOKS.items():
        app.add_route(path, look, ["GET"])
    app.add_route("/v1/requests/{id}/cancel", jobs.cancel, ["POST"])
    app.add_route("/v1/files", files.all_files, ["GET", "POST"])
    app.add_route("/v1/files/{id}", files.one_file, ["GET", "DELETE"])
    app.add_route("/v1/batches", batches.all_batches, ["GET", "POST"])
    app.add_route("/v1/batches/{id}/cancel", batches.cancel, ["POST"])
    app.add_api_websocket_route("/v1/requests/{id}/ws", socket.serve)
    if gateway.options.metrics:
        app.add_route("/metrics", catalogue.metrics, ["GET"])
    if origins := gateway.options.origins:
        methods = ["GET", "POST", "DELETE"]
        app.add_middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=methods, allow_headers=["*"], expose_headers=SHOWN
        )
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    app.state.routes = {route.endpoint: route.path for route in app.routes if isinstance(route, Route | WebSocketRoute)}
    document = description.document(app.title, app.version)
    app.openapi = lambda: document  # type: ignore[method-assign]  # as FastAPI's pages say
    return app


_LOOKS = {
    "/v1/models": catalogue.models,
    "/v1/models/{id:path}": catalogue.model,
    "/v1/requests/{id}": jobs.look,
    "/v1/requests/{id}/stream": jobs.stream,
    "/v1/files/{id}/content": files.content,
    "/v1/batches/{id}": batches.look,
    "/fleet": page.page,
    "/fleet/page/{name}": page.part,
    "/fleet/events": stream.events,
    "/fleet/jobs/{id}": life.look,
    "/health": catalogue.health,
    "/ready": catalogue.ready,
}


async def _on_fleet_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, FleetError):
        raise error
    gateway_of(request).metrics.refused(error)
    # The rest of a body that did not come in time may come when another answer is expected.
    return failed(failure_of(error), {"connection": "close"} if isinstance(error, SlowBody) else None)


async def _on_http_error(request: Request, error: Exception) -> Response:
    """An unknown path, or a method that it does not have."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    if status == HTTPStatus.NOT_FOUND and b"%2f" in request.scope["raw_path"].lower():
        # Who encodes a slash means it as a part of a name, and ours have none.
        return failed(failure_of(InvalidId("a name in the path has a slash")))
    return failed(other_status(status, HTTPStatus(status).phrase.lower()), headers)


async def _on_disconnect(request: Request, error: Exception) -> Response:
    """Nobody hears it."""
    del request, error
    return Response(status_code=400)


async def _on_fault(request: Request, error: Exception) -> Response:
    """A defect of ours. Its text may quote the request, so the log says only where it was."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    kind = type(error).__name__
    _log.error("request_failed", path=request.scope["path"], kind=kind, at=f"{where.filename}:{where.lineno}")
    return failed(other_status(500, "the gateway failed; its log says where"))


_HANDLERS = {
    FleetError: _on_fleet_error,
    HTTPException: _on_http_error,
    ClientDisconnect: _on_disconnect,
    Exception: _on_fault,
}
