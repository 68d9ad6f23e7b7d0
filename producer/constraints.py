"""What a body demands of the form of its answer: as far as a shape shows it. The engine's own check goes further."""

from collections.abc import Iterator, Mapping

from protocol import wire
from protocol.errors import InvalidRequest
from protocol.regexes import may_compile
from protocol.wire import JsonObject

MAX_SCHEMA_BYTES = 64 * 1024
MAX_REGEX_CHARS = 8_192
MAX_REGEXES_CHARS = 32_768
"""All of a body's together: reading so many takes 20 ms, in which a gateway does nothing else."""
_TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_PARTS = (
    *("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"),
    *("additionalProperties", "unevaluatedProperties", "propertyNames"),
    *("allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
)
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")


def check_constraints(body: JsonObject) -> None:
    """Check the form of JSON schemas and regexes in a body.

    Raises:
        InvalidRequest: one has another type, is empty or too large; the message names the member alone.
    """
    for _ in _constraints(body):
        pass


def check_meaning(body: JsonObject) -> None:
    """Check that they mean something; in a batch that is for the row's own submit to judge, and no file's fault.

    Raises:
        InvalidRequest: as above, or a schema has a type that there is not, or a regex is none in any dialect, or
            they have too many characters together.
    """
    chars = 0
    for where, found in _constraints(body):
        for inner, regex in [(where, found)] if isinstance(found, str) else _patterns(where, found):
            chars += len(regex)
            if chars > MAX_REGEXES_CHARS:
                raise InvalidRequest(f"{inner}: the body's have over {MAX_REGEXES_CHARS} characters together")
            _check_length(inner, regex)
            if not may_compile(regex):
                raise InvalidRequest(f"{inner}: it does not compile")


Constraint = tuple[str, Mapping[str, object] | str]
"""Where it stands, and a schema, or the text of a regex."""


def _constraints(body: JsonObject) -> Iterator[Constraint]:
    yield from _of_format(body.get("response_format"))
    structured = body.get("structured_outputs")
    if structured is not None and not isinstance(structured, Mapping):
        raise InvalidRequest("structured_outputs: an object is required")
    guided = {kind: body.get(f"guided_{kind}") for kind in ("json", "regex")}
    for prefix, kinds in (("guided_", guided), ("structured_outputs.", structured or {})):
        yield from _schema(f"{prefix}json", kinds.get("json"))
        yield from _regex(f"{prefix}regex", kinds.get("regex"))


def _of_format(wanted: object) -> Iterator[Constraint]:
    if wanted is None:
        return
    if not isinstance(wanted, Mapping) or not isinstance(wanted.get("type"), str):
        raise InvalidRequest("response_format: an object with a type is required")
    if wanted["type"] != "json_schema":
        return
    named = wanted.get("json_schema")
    if not isinstance(named, Mapping) or named.get("schema") is None:
        raise InvalidRequest("response_format.json_schema: an object with a schema is required")
    yield from _schema("response_format.json_schema.schema", named["schema"])


def _schema(where: str, schema: object) -> Iterator[Constraint]:
    if schema is None:
        return
    if isinstance(schema, str):
        encoded = schema.encode()
        try:
            schema = wire.loads(encoded)
        except InvalidRequest:
            raise InvalidRequest(f"{where}: it is no JSON schema") from None
    else:
        encoded = wire.dumps(schema)
    if not isinstance(schema, Mapping):
        raise InvalidRequest(f"{where}: a JSON schema must be an object")
    if len(encoded) > MAX_SCHEMA_BYTES:
        raise InvalidRequest(f"{where}: it has {len(encoded)} bytes; the limit is {MAX_SCHEMA_BYTES}")
    # As the `type` of the whole schema only a name or a list of names is known to any dialect.
    if not isinstance(schema.get("type", ""), str | list):
        raise InvalidRequest(f"{where}.type: a text or a list is required")
    yield where, schema


def _regex(where: str, regex: object) -> Iterator[Constraint]:
    if regex is None:
        return
    if not isinstance(regex, str) or not regex:
        raise InvalidRequest(f"{where}: a text that is not empty is required")
    _check_length(where, regex)
    yield where, regex


def _patterns(where: str, schema: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """The patterns of a schema, checking what can be seen without a dialect's own schema, the worker's to read."""
    parts = [schema]
    while parts:
        part = parts.pop()
        told = part.get("type", [])
        # Old dialects have schemas in such a list.
        if any(isinstance(name, str) and name not in _TYPES for name in (told if isinstance(told, list) else [told])):
            raise InvalidRequest(f"{where}: no JSON schema knows one of its types")
        named = part.get("patternProperties")
        patterns = [part.get("pattern"), *(named if isinstance(named, Mapping) else ())]
        yield from ((f"{where}: a pattern", pattern) for pattern in patterns if isinstance(pattern, str))
        below = [part.get(name) for name in _PARTS]
        below += [each for name in _BY_NAME if isinstance(named := part.get(name), Mapping) for each in named.values()]
        below += [each for many in below if isinstance(many, list) for each in many]
        parts += [each for each in below if isinstance(each, Mapping)]


def _check_length(where: str, regex: str) -> None:
    if len(regex) > MAX_REGEX_CHARS:
        raise InvalidRequest(f"{where}: it has {len(regex)} characters; the limit is {MAX_REGEX_CHARS}")
