"""The gateway's OpenAPI page: what each path takes and answers."""

from typing import Any

from pydantic import BaseModel

from producer import bodies
from producer.gateway import description_batches
from producer.gateway.failures import STATUSES
from producer.gateway.jobs import RequestView
from producer.gateway.relay import PLACE
from producer.gateway.wishes import Wishes
from protocol.messages import Endpoint
from protocol.wire import JsonObject

ABOUT = "OpenAI's API in front of a fleet: a queue that survives, streams that resume, priorities and deadlines."
_SCHEMAS = "#/components/schemas/"
_TEMPLATE = _SCHEMAS + "{model}"
_TITLES: dict[Endpoint, tuple[str, str, str]] = {
    "/v1/chat/completions": ("ChatRequest", "ChatAnswer", "Answer a chat"),
    "/v1/completions": ("CompletionRequest", "CompletionAnswer", "Go on with a text"),
    "/v1/embeddings": ("EmbeddingsRequest", "EmbeddingsAnswer", "Turn texts into vectors"),
}
_ERROR: JsonObject = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": ["string", "null"]},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "integer", "null"]},
            },
        }
    },
}
_MODEL: JsonObject = {
    "type": "object",
    "required": ["id", "object", "created", "owned_by"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "model"},
        "created": {"type": "integer"},
        "owned_by": {"type": "string"},
        "max_model_len": {"type": "integer"},
    },
}
_REQUEST_ID = {"x-request-id": {"schema": {"type": "string"}, "description": "Asks for it later: /v1/requests/{id}."}}
_HANDLE = r"^[a-z0-9_-]{1,64}\.(0|[1-9][0-9]{0,8})\.[a-z0-9_-]{1,64}\.[A-Za-z0-9_@=+~,-]{1,64}$"
_EVENTS = {"text/event-stream": {"schema": {"type": "string"}}}

_METRICS: JsonObject = {
    "summary": "What it counts, for Prometheus",
    "security": [],
    "responses": {
        "200": {"description": "The counters.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        "404": {"description": "It was started with --no-metrics."},
    },
}


def document(title: str, version: str) -> JsonObject:
    """The whole page."""
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "description": ABOUT},
        "security": [{"key": []}],
        "paths": {
            **{path: {"post": _inference(path)} for path in _TITLES},
            **_requests(),
            **description_batches.paths(_responses),
            **_looks(),
        },
        "components": {"schemas": _schemas(), "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _schemas() -> JsonObject:
    found: JsonObject = {"Error": _ERROR, "Model": _MODEL, **description_batches.schemas(_TEMPLATE)}
    for endpoint, (asked, answered, _) in _TITLES.items():
        schema, more = bodies.schema_of(endpoint, _TEMPLATE)
        schema["properties"]["fleet"] = {"anyOf": [{"$ref": f"{_SCHEMAS}FleetOptions"}, {"type": "null"}]}
        found |= {asked: schema, **more}
        found[answered] = {"type": "object", "required": ["object", "model"]}
    models: dict[str, type[BaseModel]] = {"FleetOptions": Wishes, "Request": RequestView}
    for name, model in models.items():
        schema = model.model_json_schema(ref_template=_TEMPLATE)
        found |= schema.pop("$defs", {})
        found[name] = schema
    return found


def _inference(endpoint: Endpoint) -> JsonObject:
    asked, answered, summary = _TITLES[endpoint]
    content = {"application/json": {"schema": {"$ref": f"{_SCHEMAS}{answered}"}}}
    streams = {} if endpoint == "/v1/embeddings" else _EVENTS
    return {
        "summary": summary,
        "parameters": [
            _header("idempotency-key", "Sent again with the same body, it is the same job."),
            _header("traceparent", "W3C's: the span that the request's own spans stand under."),
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": f"{_SCHEMAS}{asked}"}}},
        },
        "responses": _responses("The answer; with `stream` one event a chunk.", {**content, **streams}, _REQUEST_ID),
    }


def _requests() -> JsonObject:
    view = {"application/json": {"schema": {"$ref": f"{_SCHEMAS}Request"}}}
    own = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "pattern": _HANDLE}}
    place = {"type": "string", "pattern": PLACE}
    after = {"name": "after", "in": "query", "schema": place, "description": "As `Last-Event-ID`."}
    last = _header("last-event-id", "The last event that you have; it goes on after it.", place)
    looked = {"summary": "Look at a request", "parameters": [own], "responses": _responses("The request.", view)}
    ended = {"summary": "Cancel a request", "parameters": [own], "responses": _responses("The request.", view)}
    followed = {
        "summary": "Follow a request, from where you stood",
        "parameters": [own, after, last],
        "responses": _responses("Its events.", _EVENTS, _REQUEST_ID),
    }
    path = "/v1/requests/{id}"
    return {path: {"get": looked}, f"{path}/stream": {"get": followed}, f"{path}/cancel": {"post": ended}}


def _looks() -> JsonObject:
    model = {"$ref": f"{_SCHEMAS}Model"}
    listed = {
        "type": "object",
        "required": ["object", "data"],
        "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": model}},
    }
    status = {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}
    own = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    return {
        "/v1/models": {"get": {"summary": "List models", "responses": _responses("The models.", _json(listed))}},
        "/v1/models/{id}": {
            "get": {"summary": "Look at a model", "parameters": [own], "responses": _responses("It.", _json(model))}
        },
        "/health": {"get": _probe("Whether this process lives", status)},
        "/ready": {"get": _probe("Whether it takes requests", status)},
        "/metrics": {"get": _METRICS},
    }


def _probe(summary: str, status: JsonObject) -> JsonObject:
    answer = {"content": _json(status)}
    responses = {"200": {"description": "Yes.", **answer}, "503": {"description": "No.", **answer}}
    return {"summary": summary, "security": [], "responses": responses}


def _json(schema: JsonObject) -> JsonObject:
    return {"application/json": {"schema": schema}}


def _header(name: str, description: str, schema: JsonObject | None = None) -> JsonObject:
    return {"name": name, "in": "header", "schema": schema or {"type": "string"}, "description": description}


def _responses(description: str, content: JsonObject, headers: JsonObject | None = None) -> dict[str, Any]:
    """The good answer, and every other one."""
    error = {"description": "An error.", "content": _json({"$ref": f"{_SCHEMAS}Error"})}
    good = {"description": description, "content": content, "headers": headers or {}}
    return {"200": good, **{str(status): error for status in STATUSES}}
