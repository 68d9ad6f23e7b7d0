"""`/v1/models`, `/health`, `/ready`, `/metrics`."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from producer.gateway.answers import answered
from producer.gateway.state import gateway_of
from protocol import reads
from protocol.call import run
from protocol.errors import FleetError, UnknownModel
from protocol.messages import ModelRecord
from protocol.wire import JsonObject

READY_S = 2.0
"""A Redis that needs longer to answer makes nobody ready."""


async def models(request: Request) -> Response:
    """`GET /v1/models`: those that the key may use.

    Raises:
        FleetError: the key is not known, or Redis is away.
    """
    shown = await _models(request)
    return answered({"object": "list", "data": [_shown(name, record) for name, record in sorted(shown.items())]})


async def model(request: Request) -> Response:
    """`GET /v1/models/{id}`.

    Raises:
        FleetError: as `models`; or there is no such model.
    """
    shown, name = await _models(request), request.path_params["id"]
    if name not in shown:
        raise UnknownModel("there is no such model, or this key may not use it")
    return answered(_shown(name, shown[name]))


async def health(request: Request) -> Response:
    """`GET /health`: this process lives."""
    del request
    return answered({"status": "ok"})


async def ready(request: Request) -> Response:
    """`GET /ready`: it takes requests; 503 while Redis is away, or once it is about to end."""
    gateway = gateway_of(request)
    if gateway.closing:
        return answered({"status": "closing"}, 503)
    try:
        async with asyncio.timeout(READY_S):
            await run(gateway.fleet.redis, reads.models())
    except (FleetError, TimeoutError):
        return answered({"status": "redis is away"}, 503)
    return answered({"status": "ready"})


async def metrics(request: Request) -> Response:
    """`GET /metrics`, for Prometheus."""
    page, kind = gateway_of(request).metrics.shown(request.headers.get("accept", ""))
    return Response(page, media_type=kind)


async def _models(request: Request) -> dict[str, ModelRecord]:
    gateway = gateway_of(request)
    grant = await gateway.admit(request)
    return {name: record for name, record in (await gateway.fleet.models()).items() if grant.may_use(name)}


def _shown(name: str, record: ModelRecord) -> JsonObject:
    shown: JsonObject = {"id": name, "object": "model", "created": 0, "owned_by": "tokenfleet"}
    return shown | ({"max_model_len": record.context_tokens} if record.context_tokens else {})
