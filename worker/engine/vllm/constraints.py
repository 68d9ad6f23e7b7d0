"""The members of a body that an output's grammar is made of.

One that can't be made has ended the engine: an invalid schema, a bound beyond integers, an empty schema text,
`json_object` that is false, a regex that does not compile.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from protocol.errors import InvalidRequest
from protocol.wire import JsonObject, loads
from worker.engine.vllm.schemas import Unfit, check_regex, check_schema

Constraint = tuple[str, Callable[[object], None], object]
"""The member's name, what checks it, and its value."""


def constraints(body: JsonObject) -> Iterator[Constraint]:
    """What the output's grammar is made of, each with its check, which raises `Unfit`."""
    yield from _of_format(body.get("response_format"))
    guided = {name: body.get(f"guided_{name}") for name in ("json", "regex", "choice", "grammar")}
    yield from _of_kinds("guided_", guided)
    structured = body.get("structured_outputs")
    if isinstance(structured, dict):
        yield from _of_kinds("structured_outputs.", structured)
    elif structured is not None:
        yield "structured_outputs", _check_object, structured
    yield from _of_tools(body)


def _of_kinds(prefix: str, kinds: Mapping[str, object]) -> Iterator[Constraint]:
    checks = {
        "json": check_schema,
        "regex": check_regex,
        "choice": _check_choice,
        "grammar": _check_grammar,
        "json_object": _check_flag,
        "structural_tag": _check_tag,
    }
    for kind, check in checks.items():
        if kinds.get(kind) is not None:
            yield f"{prefix}{kind}", check, kinds[kind]


def _of_format(wanted: object) -> Iterator[Constraint]:
    if wanted is None:
        return
    yield "response_format", _check_object, wanted
    if isinstance(wanted, dict) and wanted.get("type") == "json_schema":
        named = wanted.get("json_schema")
        yield "response_format.json_schema", _check_object, named
        yield "response_format.json_schema.schema", check_schema, named.get("schema") if named else None
    elif isinstance(wanted, dict) and wanted.get("type") == "structural_tag":
        yield "response_format", _check_tag, wanted


def _of_tools(body: JsonObject) -> Iterator[Constraint]:
    """Only of tools that the answer must call: of others no grammar is made, and their schemas are often loose."""
    tools, forced = body.get("tools"), body.get("tool_choice") not in (None, "auto", "none")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or function.get("parameters") is None:
            continue
        if forced or function.get("strict"):
            yield f"tools.{index}.function.parameters", check_schema, function["parameters"]


def _check_object(value: object) -> None:
    if not isinstance(value, dict):
        raise Unfit("an object is required")


def _check_choice(value: object) -> None:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise Unfit("a list of texts is required, and none may be empty")


def _check_grammar(value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise Unfit("a grammar must be a text that is not empty")


def _check_flag(value: object) -> None:
    if value is not True:
        raise Unfit("only true asks for JSON; leave it out otherwise")


def _check_tag(value: object) -> None:
    """Tags hold schemas at any depth: under `schema` in the old form, `json_schema` in the new one."""
    try:
        level = [loads(value) if isinstance(value, str) else value]
    except InvalidRequest:
        raise Unfit("it is no valid JSON") from None
    while level:
        for part in level:
            for name in ("schema", "json_schema"):
                if isinstance(part, dict) and isinstance(part.get(name), dict):
                    check_schema(part[name])
        level = [child for part in level for child in _children(part)]


def _children(part: object) -> Sequence[object]:
    """What stands below in a tag, schemas apart."""
    if isinstance(part, dict):
        return [value for name, value in part.items() if name not in ("schema", "json_schema")]
    return part if isinstance(part, list) else []
