"""`/v1/batches`: batches of the key's tenant, which the batch runners run."""

import asyncio
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from producer.batch.options import Order
from producer.batch.service.client import Batches
from producer.batch.service.glance import model_of
from producer.batch.service.wishes import described
from producer.batch.store import FileStore, store_at
from producer.gateway.answers import answered
from producer.gateway.auth import Grant
from producer.gateway.failures import Forbidden
from producer.gateway.paging import after_of, limit_of, page
from producer.gateway.reading import read_object
from producer.gateway.state import Gateway, checked_id, gateway_of
from producer.gateway.wishes import IDEMPOTENCY
from producer.requests import LONGEST_S, seconds
from producer.words import words_of
from protocol.batches import BatchSpec
from protocol.errors import InvalidRequest, UnknownModel
from protocol.messages import Endpoint
from protocol.states import Priority
from protocol.wire import JsonObject

BODY_BYTES = 128 * 1024
LISTED, MOST_LISTED = 20, 100
HOUR_S = 3600.0
WINDOW = "write hours as in 24h, or seconds as in 300s"


class BatchOptions(BaseModel):
    """The member `fleet` of a batch's body."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    priority: Literal["medium", "low"] | None = None
    """`low` is for whenever there is room; the most urgent one that the key allows by default."""
    model: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Run all rows on this model, whatever they name."""
    deadline: Annotated[float, Field(ge=1, le=LONGEST_S, allow_inf_nan=False, strict=True)] | None = None
    """Seconds from now after which rows that have not ended expire, in place of `completion_window`."""
    on_invalid: Literal["fail", "skip"] = "fail"
    """`fail`: one bad line and nothing runs; `skip`: the others run."""
    dedup: Annotated[bool, Field(strict=True)] = False
    """Run rows with the same body at temperature 0 once."""
    order: Order = "completion"
    """Of the output's lines: as the rows end, or as they stand in the input."""
    max_errors: Annotated[int, Field(ge=0, le=10**9, strict=True)] | None = None
    """The batch fails once more rows have."""
    notify: Annotated[bool, Field(strict=True)] = True
    """Whether its end is told to the runner's webhook."""


class BatchRequest(BaseModel):
    """A batch's body."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input_file_id: str
    endpoint: Endpoint
    completion_window: Annotated[str, Field(pattern=r"^[0-9]{1,8}(\.[0-9]{1,3})?[hs]$")]
    """`24h`, or another number of hours, or of seconds, as in `300s`."""
    metadata: dict[str, Any] | None = None
    """At most 16 texts of up to 512 characters, with names of up to 64."""
    fleet: BatchOptions | None = None

    @property
    def window_s(self) -> float:
        """`completion_window` in seconds.

        Raises:
            InvalidRequest: it is shorter than a second, or longer than a year.
        """
        number, unit = float(self.completion_window[:-1]), self.completion_window[-1]
        return seconds("completion_window", number * (HOUR_S if unit == "h" else 1.0), least=1.0)

    @classmethod
    def of(cls, body: JsonObject) -> "BatchRequest":
        """Check a body.

        Raises:
            InvalidRequest: a member is missing, malformed, or not one of ours.
        """
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
            where = [str(part) for part in problem["loc"] if part in _NAMES]
            told = words_of(problem, (BatchOptions if where == ["fleet"] else cls).model_fields)
            told = WINDOW if where == ["completion_window"] else told
            raise InvalidRequest(f"{'.'.join(where) or 'the body'}: {told}") from None


_NAMES = BatchRequest.model_fields.keys() | BatchOptions.model_fields.keys()
"""Others are the user's own words."""


async def all_batches(request: Request) -> Response:
    """`POST /v1/batches` and `GET /v1/batches`: create one; those that there are, the newest first.

    Raises:
        FleetError: it is refused; nothing was stored.
        ClientDisconnect: the client left before the request was complete.
    """
    return await (_create if request.method == "POST" else _list)(request)


async def look(request: Request) -> Response:
    """`GET /v1/batches/{id}`.

    Raises:
        FleetError: it is not there, or not this key's.
    """
    gateway, grant = await _asked(request)
    batch_id = checked_id(request.path_params["id"])
    return answered((await Batches(gateway.fleet, grant.tenant).get(batch_id)).as_json())


async def cancel(request: Request) -> Response:
    """`POST /v1/batches/{id}/cancel`: also for one that has ended, which stays as it is.

    Raises:
        FleetError: as `look`.
    """
    gateway, grant = await _asked(request)
    batch_id = checked_id(request.path_params["id"])
    return answered((await Batches(gateway.fleet, grant.tenant).cancel(batch_id)).as_json())


async def _create(request: Request) -> Response:
    gateway, grant = await _asked(request)
    store = store_at(gateway.fleet.settings.store)
    asked = BatchRequest.of(await read_object(request, BODY_BYTES, gateway.options.body_s))
    gateway.check_open()
    spec = await asyncio.to_thread(_described, asked, grant, store)
    key = request.headers.get(IDEMPOTENCY, "")
    return answered((await Batches(gateway.fleet, grant.tenant).create(spec, key)).as_json())


async def _list(request: Request) -> Response:
    gateway, grant = await _asked(request)
    limit, after = limit_of(request, LISTED, MOST_LISTED), after_of(request)
    found = await Batches(gateway.fleet, grant.tenant).list(limit + 1, after)
    return answered(page([record.as_json() for record in found], limit))


def _described(asked: BatchRequest, grant: Grant, store: FileStore) -> BatchSpec:
    """The batch that a request asks for.

    Raises:
        UnknownFile, InvalidRequest: the input is not there, or an option breaks a rule.
        UnknownModel, Forbidden: the key may not do this.
    """
    if store.get(grant.tenant, checked_id(asked.input_file_id, "input_file_id")).purpose != "batch":
        raise InvalidRequest("input_file_id: a file with the purpose `batch` is required")
    options = asked.fleet or BatchOptions()
    spec = described(
        asked.endpoint,
        model=_model(options, grant, store, asked.input_file_id),
        priority=_priority(options, grant),
        deadline=options.deadline or asked.window_s,
        metadata=asked.metadata or {},
        on_invalid=options.on_invalid,
        dedup=options.dedup,
        order=options.order,
        max_errors=options.max_errors,
        notify=options.notify,
    )
    given = {"input_file_id": asked.input_file_id, "endpoint": asked.endpoint, "models": grant.models}
    return spec.model_copy(update=given)


def _model(options: BatchOptions, grant: Grant, store: FileStore, file_id: str) -> str | None:
    """The one to run all rows on, where it was asked for. A glance at the file says at once what its rows would."""
    named = options.model or (grant.models and model_of(store.path(grant.tenant, file_id)))
    if named and not grant.may_use(named):
        raise UnknownModel("there is no such model, or this key may not use it")
    return options.model


def _priority(options: BatchOptions, grant: Grant) -> Priority:
    wanted = [Priority(options.priority)] if options.priority else [Priority.MEDIUM, Priority.LOW]
    if allowed := [priority for priority in wanted if priority in grant.priorities]:
        return allowed[0]
    raise Forbidden("this key may not submit batches of this priority")


async def _asked(request: Request) -> tuple[Gateway, Grant]:
    gateway = gateway_of(request)
    return gateway, await gateway.admit(request)
