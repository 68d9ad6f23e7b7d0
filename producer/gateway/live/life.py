"""`GET /fleet/jobs/{id}`: a job's life for the page. Never what it asks or answers: that is behind `/v1/requests`."""

from starlette.requests import Request
from starlette.responses import Response

from producer.gateway.answers import answered
from producer.gateway.state import gateway_of
from producer.jobs import JobInfo
from protocol import reads
from protocol.call import patiently, run
from protocol.handle import Handle
from protocol.wire import JsonObject

_TIMES = ("submitted_ms", "ripe_ms", "assigned_ms", "started_ms", "first_token_ms", "finished_ms", "deadline_ms")
_FIELDS = ("state", "priority", "attempt", "worker", "tries", "strikes", "error")


async def look(request: Request) -> Response:
    """One job of the key's tenant; of any tenant for an operator's.

    Raises:
        FleetError: it is not there, or not for this key to see.
    """
    gateway = gateway_of(request)
    grant = await gateway.admit(request)
    handle = Handle.parse(request.path_params["id"])
    info = await gateway.fleet.job(grant.sight.known(handle))
    patience_s = gateway.fleet.settings.redis_patience_s
    now_ms = await patiently(lambda: run(gateway.fleet.redis, reads.store_time_ms()), patience_s)
    return answered(_told(handle, info, now_ms))


def _told(handle: Handle, info: JobInfo, now_ms: int) -> JsonObject:
    """Times in ms of Redis's clock, 0 when not reached."""
    record, spec = info.record, info.record.spec
    return {
        "id": str(handle),
        "tenant": handle.tenant,
        "model": spec.model,
        "endpoint": spec.endpoint,
        "stream": spec.stream,
        "place": info.place,
        "policy": record.why.policy if record.why else "",
        "predicted_ms": record.why.predicted_ms if record.why else 0,
        "history": [attempt.model_dump() for attempt in record.history],
        "now_ms": now_ms,
        **{name: getattr(record, name) for name in (*_FIELDS, *_TIMES)},
    }
