"""The part of the gateway's OpenAPI page that is on files and batches."""

from collections.abc import Callable
from typing import Any, get_args

from producer.batch.store import PURPOSES
from producer.gateway import batches, files
from producer.gateway.batches import BatchRequest
from producer.gateway.uploads import FORM
from producer.gateway.wishes import IDEMPOTENCY
from protocol.batches import BatchStatus
from protocol.messages import Endpoint
from protocol.wire import JsonObject

Responses = Callable[[str, JsonObject], dict[str, Any]]
"""From a description and the content of the good answer to all answers."""

_SCHEMAS = "#/components/schemas/"
_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
_MAYBE_TEXT, _MAYBE_NUMBER = {"type": ["string", "null"]}, {"type": ["integer", "null"]}


def _object(members: JsonObject) -> JsonObject:
    return {"type": "object", "required": list(members), "properties": members}


def _list_of(name: str) -> JsonObject:
    items = {"type": "array", "items": {"$ref": f"{_SCHEMAS}{name}"}}
    ends = {"first_id": _MAYBE_TEXT, "last_id": _MAYBE_TEXT, "has_more": {"type": "boolean"}}
    return _object({"object": {"const": "list"}, "data": items, **ends})


_FILE = _object(
    {
        "id": _TEXT,
        "object": {"const": "file"},
        "bytes": _NUMBER,
        "created_at": _NUMBER,
        "filename": _TEXT,
        "purpose": {"enum": list(PURPOSES)},
        "status": {"const": "processed"},
    }
)
_BATCH = _object(
    {
        "id": _TEXT,
        "object": {"const": "batch"},
        "endpoint": {"enum": list(get_args(Endpoint))},
        "input_file_id": _TEXT,
        "completion_window": _TEXT,
        "status": {"enum": [str(status) for status in BatchStatus]},
        "output_file_id": _MAYBE_TEXT,
        "error_file_id": _MAYBE_TEXT,
        "created_at": _NUMBER,
        "expires_at": _NUMBER,
        **{f"{status}_at": _MAYBE_NUMBER for status in BatchStatus if status is not BatchStatus.VALIDATING},
        "request_counts": _object({"total": _NUMBER, "completed": _NUMBER, "failed": _NUMBER}),
        "errors": {"type": ["object", "null"]},
        "metadata": {"type": ["object", "null"]},
        "usage": {"type": ["object", "null"]},
    }
)
_DELETED = _object({"id": _TEXT, "object": {"const": "file"}, "deleted": {"const": True}})
_UPLOAD: JsonObject = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {"file": {"type": "string", "format": "binary"}, "purpose": {"const": "batch"}},
    "additionalProperties": False,
}

_ONCE: JsonObject = {
    "name": IDEMPOTENCY,
    "in": "header",
    "schema": _TEXT,
    "description": "Sent again with the same body, it is the same batch.",
}


def schemas(template: str) -> JsonObject:
    """What the paths below speak of."""
    asked = BatchRequest.model_json_schema(ref_template=template)
    return {"File": _FILE, "Batch": _BATCH, **asked.pop("$defs", {}), "BatchRequest": asked}


def paths(responses: Responses) -> JsonObject:
    """All paths of files and batches."""
    return {**_files(responses), **_batches(responses)}


def _files(responses: Responses) -> JsonObject:
    own = [_own(r"^file-[A-Za-z0-9_-]{1,59}$")]
    purpose = {"name": "purpose", "in": "query", "schema": {"enum": list(PURPOSES)}}
    order = {"name": "order", "in": "query", "schema": {"enum": ["asc", "desc"], "default": "desc"}}
    listing = [*_page(files.MOST_LISTED, files.MOST_LISTED), purpose, order]
    asked = {"required": True, "content": {FORM: {"schema": _UPLOAD}}}
    file = responses("The file.", _json({"$ref": f"{_SCHEMAS}File"}))
    listed = responses("The files.", _json(_list_of("File")))
    deleted = responses("It is gone.", _json(_DELETED))
    content = responses("Its bytes.", {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}})
    return {
        "/v1/files": {
            "post": {"summary": "Put a file of requests here", "requestBody": asked, "responses": file},
            "get": {"summary": "List files", "parameters": listing, "responses": listed},
        },
        "/v1/files/{id}": {
            "get": {"summary": "Look at a file", "parameters": own, "responses": file},
            "delete": {"summary": "Delete a file", "parameters": own, "responses": deleted},
        },
        "/v1/files/{id}/content": {"get": {"summary": "Read a file", "parameters": own, "responses": content}},
    }


def _batches(responses: Responses) -> JsonObject:
    own, listing = [_own(r"^batch_[a-z0-9_-]{1,58}$")], _page(batches.LISTED, batches.MOST_LISTED)
    asked = {"required": True, "content": _json({"$ref": f"{_SCHEMAS}BatchRequest"})}
    batch = responses("The batch.", _json({"$ref": f"{_SCHEMAS}Batch"}))
    listed = responses("The batches.", _json(_list_of("Batch")))
    return {
        "/v1/batches": {
            "post": {
                "summary": "Run a file of requests",
                "parameters": [_ONCE],
                "requestBody": asked,
                "responses": batch,
            },
            "get": {"summary": "List batches", "parameters": listing, "responses": listed},
        },
        "/v1/batches/{id}": {"get": {"summary": "Look at a batch", "parameters": own, "responses": batch}},
        "/v1/batches/{id}/cancel": {"post": {"summary": "Cancel a batch", "parameters": own, "responses": batch}},
    }


def _own(pattern: str) -> JsonObject:
    return {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "pattern": pattern}}


def _page(default: int, most: int) -> list[JsonObject]:
    number = {"type": "integer", "minimum": 1, "maximum": most, "default": default}
    after = {"name": "after", "in": "query", "schema": _TEXT, "description": "The last one of the page before."}
    return [{"name": "limit", "in": "query", "schema": number}, after]


def _json(schema: JsonObject) -> JsonObject:
    return {"application/json": {"schema": schema}}
