"""`/v1/requests/…`: look at a job, follow it from where one stood, cancel it."""

from typing import Any

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from producer.gateway.answers import answered
from producer.gateway.failures import engine_body, failure_of_end
from producer.gateway.relay import Cursor, Relay
from producer.gateway.state import Gateway, gateway_of, known
from producer.gateway.streaming import EventStream, Follower
from producer.jobs import JobInfo
from protocol.handle import Handle
from protocol.messages import Outcome
from protocol.states import Priority, State

LAST_EVENT_ID = "last-event-id"


class RequestView(BaseModel):
    """A request as its client sees it. Times are Unix seconds, absent before they are reached."""

    id: str
    object: str = "fleet.request"
    status: State
    priority: Priority
    model: str
    endpoint: str
    stream: bool
    position: int | None = Field(None, description="How many jobs stand before it; absent when it does not wait.")
    attempt: int = Field(description="Its runs are numbered; 0 before the first.")
    created_at: float
    started_at: float | None = None
    first_token_at: float | None = None
    finished_at: float | None = None
    response: dict[str, Any] | None = Field(None, description="The engine's answer, once it is complete.")
    error: dict[str, Any] | None = Field(None, description="Why there is none.")


async def look(request: Request) -> Response:
    """`GET /v1/requests/{id}`.

    Raises:
        FleetError: it is not there, or not this key's.
    """
    gateway, handle = await _asked(request)
    return answered(await _view(gateway, handle))


async def cancel(request: Request) -> Response:
    """`POST /v1/requests/{id}/cancel`: also for one that has ended, which stays as it is.

    Raises:
        FleetError: as `look`.
    """
    gateway, handle = await _asked(request)
    await gateway.fleet.cancel(handle)
    return answered(await _view(gateway, handle))


async def stream(request: Request) -> Response:
    """`GET /v1/requests/{id}/stream`: from its beginning, or after the event that `Last-Event-ID` or `after` names.

    Raises:
        FleetError: as `look`; or that is no event's id.
    """
    if request.method == "HEAD":
        return await look(request)
    gateway, handle = await _asked(request)
    gateway.check_open()
    after = request.headers.get(LAST_EVENT_ID) or request.query_params.get("after", "")
    return EventStream(gateway, await follower(gateway, handle, after))


async def follower(gateway: Gateway, handle: Handle, after: str) -> Follower:
    """Somebody who follows a job anew; when they leave, the job's own wish counts.

    Where it is answered as a whole, they are not who asked for it: their leaving says nothing.

    Raises:
        FleetError: there is no such job, or `after` is no event's id.
    """
    relay = Relay(handle, cursor=Cursor.parse(after), place=after)
    spec = (await gateway.fleet.job(handle)).record.spec
    return Follower(relay, spec.unfollowed_s if spec.stream else None)


async def _asked(request: Request) -> tuple[Gateway, Handle]:
    gateway = gateway_of(request)
    grant = await gateway.admit(request)
    return gateway, known(grant, request.path_params["id"])


async def _view(gateway: Gateway, handle: Handle) -> dict[str, Any]:
    info = await gateway.fleet.job(handle)
    outcome = await gateway.fleet.result(handle) if info.record.state.terminal else None
    return view_of(info, outcome).model_dump(mode="json", exclude_none=True)


def view_of(info: JobInfo, outcome: Outcome | None) -> RequestView:
    """A look at a job, with how it ended."""
    record, spec = info.record, info.record.spec
    failure = failure_of_end(outcome) if outcome else None
    refused = outcome is not None and (outcome.status_code or 200) >= 400
    error = failure.body["error"] if failure else engine_body(outcome)["error"] if outcome and refused else None
    return RequestView(
        id=info.handle,
        status=record.state,
        priority=record.priority,
        model=spec.model,
        endpoint=spec.endpoint,
        stream=spec.stream,
        position=info.place,
        attempt=record.attempt,
        created_at=record.submitted_ms / 1000,
        started_at=_s(record.started_ms),
        first_token_at=_s(record.first_token_ms),
        finished_at=_s(record.finished_ms),
        response=None if outcome is None or error else outcome.body,
        error=error,
    )


def _s(moment_ms: int) -> float | None:
    return moment_ms / 1000 if moment_ms else None
