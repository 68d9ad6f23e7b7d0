"""JSON schemas and regexes that a body brings: what no engine can make a grammar of, found before it tries.

Some versions of vLLM compile grammars inside the engine's loop, where an error ends the engine and all that it runs.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for

from protocol.errors import InvalidRequest
from protocol.regexes import compiles
from protocol.wire import JsonObject, dumps, loads

MAX_SCHEMA_BYTES = 64 * 1_024
"""Checking one of this size takes half a second, once: the tokens of all other requests wait for it."""
MAX_REGEX_CHARS = 8_192
MAX_NESTING = 64
INT64 = 2**63

_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
"""Their members' names are the user's; each value is a schema."""
_LITERAL = frozenset({"enum", "const", "default", "examples", "example"})
"""What stands below them is data."""
_SAME_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})
"""Schemas below them apply to the same value: a `$ref` that comes back this way never gets anywhere."""
_REFS = ("$ref", "$dynamicRef", "$recursiveRef")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_KEYWORDS = frozenset(Draft202012Validator.VALIDATORS) | _BY_NAME


class Unfit(ValueError):
    """No grammar can be made of it. The message repeats nothing of the user's."""


def check_schema(value: object) -> None:
    """Check a JSON schema, as an object or as its text.

    Raises:
        Unfit: it is none, it is too large, a `$ref` leads nowhere or round in a circle, a pattern is no regex, or it
            has a feature that ended the engine of some version.
    """
    if isinstance(value, str):
        encoded = value.encode()
    elif isinstance(value, dict):
        encoded = dumps(value)
    else:
        raise Unfit("a JSON schema must be an object")
    if len(encoded) > MAX_SCHEMA_BYTES:
        raise Unfit(f"the JSON schema has {len(encoded)} bytes; the limit is {MAX_SCHEMA_BYTES}")
    if problem := _problem(encoded):
        raise Unfit(problem)


def check_regex(value: object) -> None:
    """Check a regex.

    Raises:
        Unfit: it is empty, too long, or does not compile.
    """
    if not isinstance(value, str) or not value:
        raise Unfit("a regex must be a text that is not empty")
    if len(value) > MAX_REGEX_CHARS:
        raise Unfit(f"the regex has {len(value)} characters; the limit is {MAX_REGEX_CHARS}")
    if not compiles(value):
        raise Unfit("the regex does not compile")


@lru_cache(maxsize=64)
def _problem(encoded: bytes) -> str:
    """What is wrong with a schema; empty when nothing is. All rows of a batch bring the same one."""
    try:
        schema = loads(encoded)
        if not isinstance(schema, dict):
            return "a JSON schema must be an object"
        _check_parts(schema)
        _check_keywords(schema)
        _check_ways(schema)
    except InvalidRequest:
        return "the JSON schema is no valid JSON"
    except Unfit as unfit:
        return str(unfit)
    return ""


def _check_keywords(schema: JsonObject) -> None:
    """By the dialect that it names, else by the latest. Patterns apart: that check knows Python's regexes alone."""
    dialect = schema.get("$schema")
    named = {"$schema": dialect} if isinstance(dialect, str) else {}
    validator = validator_for(named, Draft202012Validator)
    if error := next(validator(validator.META_SCHEMA).iter_errors(schema), None):
        keywords = [part for part in error.absolute_path if part in _KEYWORDS]
        raise Unfit(f"not a valid JSON schema{f', see {keywords[-1]}' if keywords else ''}")


def _check_parts(schema: JsonObject) -> None:
    """What can be seen without leaving a schema; also bounds its depth, so that others may recurse."""
    level = [schema]
    for _ in range(MAX_NESTING):
        for part in level:
            _check_part(part)
        level = [below for part in level for _, below in _below(part)]
        if not level:
            return
    raise Unfit(f"the JSON schema is nested over {MAX_NESTING} deep")


def _check_part(part: JsonObject) -> None:
    if isinstance(part.get("items"), list):
        raise Unfit("items must be one JSON schema; use prefixItems for a list")
    for name in _BOUNDS:
        bound = part.get(name)
        if isinstance(bound, int | float) and not -INT64 <= bound < INT64:
            raise Unfit(f"{name} is outside 64-bit integers")
    patterns = part.get("patternProperties")
    for pattern in patterns if isinstance(patterns, dict) else ():
        check_regex(pattern)
    if isinstance(part.get("pattern"), str):
        check_regex(part["pattern"])


def _below(schema: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """The schemas directly below one, with the keyword that holds each."""
    for keyword, value in schema.items():
        if keyword in _LITERAL:
            continue
        parts = value if isinstance(value, list) else [value]
        if isinstance(value, dict) and keyword in _BY_NAME:
            parts = list(value.values())
        yield from ((keyword, part) for part in parts if isinstance(part, dict))


def _check_ways(root: JsonObject) -> None:
    """Follow each `$ref` and what applies to the same value: every way must end."""
    finished: set[int] = set()
    level = [root]
    while level:
        for part in level:
            _follow(root, part, finished)
        level = [below for part in level for _, below in _below(part)]


def _follow(root: JsonObject, start: JsonObject, finished: set[int]) -> None:
    """Depth first: a schema that is met again before its ways have ended stands in a circle."""
    under_way: set[int] = set()
    todo = [(start, False)]
    while todo:
        part, leaving = todo.pop()
        if leaving:
            under_way.discard(id(part))
            finished.add(id(part))
        elif id(part) in under_way:
            raise Unfit("a $ref of the JSON schema leads back to itself")
        elif id(part) not in finished:
            under_way.add(id(part))
            todo.append((part, True))
            todo += ((way, False) for way in _ways(root, part))


def _ways(root: JsonObject, part: JsonObject) -> Iterator[JsonObject]:
    yield from (below for keyword, below in _below(part) if keyword in _SAME_PLACE)
    for name in _REFS:
        if isinstance(part.get(name), str):
            target = _target(root, part[name])
            if isinstance(target, dict):
                yield target


def _target(root: JsonObject, ref: str) -> object:
    """What a `$ref` names. Only pointers into the schema itself: engines fetch nothing."""
    if ref != "#" and not ref.startswith("#/"):
        raise Unfit("a $ref must be # or begin with #/")
    found: Any = root
    for step in ref.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isascii() and name.isdecimal() and len(name) < 9:
            found = found[int(name)] if int(name) < len(found) else None
        else:
            found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, dict | bool):
        raise Unfit("a $ref of the JSON schema leads nowhere")
    return found
