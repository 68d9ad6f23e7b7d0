"""docs/events.md: every line that our roles log, by what stands in the code and in events.toml."""

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "events.md"
TEXTS = Path(__file__).with_name("events.toml")
LEVELS = ("error", "warning", "info", "debug")
PACKAGES = ("protocol", "telemetry", "producer", "scheduler", "worker", "tokenfleet")
# The most special one first.
_ROLES = {
    "producer/gateway/": "gateway",
    "producer/batch/": "batch-runner",
    "tokenfleet/runner/": "batch-runner",
    "scheduler/": "scheduler",
    "worker/": "worker",
    "": "any",
}
_METHODS = {"exception": "error", "critical": "error"} | {level: level for level in LEVELS}
_LOGGER = re.compile(r"_?log(?:ger)?\Z")
_TITLES = {
    "scheduler": "Scheduler",
    "worker": "Worker",
    "gateway": "Gateway",
    "batch-runner": "Batch runner",
    "any": "Every role",
}
_HEAD = """# Log events

Made by `make pages` from the code and `bench/events.toml`; a test holds it against the code.

Each role writes JSON lines to stderr: `timestamp`, `level`, `event`, `role`, and what is named below. `event` is one of
these names and never changes with what it is about. A line about a job has `job`, its handle, and once it was assigned
`attempt`; all lines of an attempt have both. No line has a prompt or an answer in it. `TOKENFLEET_LOG_LEVEL` chooses
the least level.

A handle is `pool.number.tenant.id`: `job` names the tenant. So does `tokenfleet.job` of each span of a traced job, and
spans go to whatever collector `OTEL_EXPORTER_OTLP_ENDPOINT` names: choose tenants' names that may be read there.

A traced job has these spans under its caller's, with times by Redis's clock: `submit` (by the producer), `queue` (it
waits in its lane), `assign` (the dispatcher's call), `inbox` (it waits at its worker), `engine` (it runs, with an event
`first_token`) and `finish` (its end is stored). A job that came back has `queue` to `engine` again for each attempt.

| level | read it |
| --- | --- |
| error | now: it does not mend itself |
| warning | in the morning: it has mended itself or will, but should not happen often |
| info | when you look for something: normal life |
| debug | when you look at one job |
"""


@dataclass(frozen=True)
class Line:
    """One call in the code that logs.

    Attributes:
        at: file and line.
        event: None where the code does not write it out.
        fields: what the line names, beside what its logger adds.
    """

    role: str
    level: str
    at: str
    event: str | None
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """One event of a role, as the page shows it."""

    event: str
    level: str
    fields: tuple[str, ...]
    means: str
    do: str


def role_of(path: str) -> str:
    """Who logs what is written in this file."""
    return next(role for prefix, role in _ROLES.items() if path.startswith(prefix))


def lines_of(path: str, text: str) -> Iterator[Line]:
    """The calls in one file; `path` is from the root."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in _METHODS and _LOGGER.match(_name(node.func.value)):
            first = node.args[0] if node.args else None
            event = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
            fields = tuple(word.arg for word in node.keywords if word.arg)
            yield Line(role_of(path), _METHODS[node.func.attr], f"{path}:{node.lineno}", event, fields)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


@cache
def lines() -> tuple[Line, ...]:
    """All calls in the packages that we ship."""
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return tuple(
        line for path in paths for line in lines_of(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    )


def texts() -> dict[str, dict[str, dict[str, str]]]:
    """For each role and event what it `means` and what to `do`."""
    return tomllib.loads(TEXTS.read_text(encoding="utf-8"))


def entries(role: str) -> list[Entry]:
    """A role's events, the worst first.

    Raises:
        KeyError: the code has one that the texts lack.
    """
    told = texts()[role]
    found: dict[str, Entry] = {}
    for line in lines():
        if line.role == role and line.event:
            before = found[line.event].fields if line.event in found else ()
            fields = tuple(dict.fromkeys((*before, *line.fields)))
            found[line.event] = Entry(line.event, line.level, fields, **told[line.event])
    return sorted(found.values(), key=lambda entry: (LEVELS.index(entry.level), entry.event))


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for role, title in _TITLES.items():
        rows = [
            f"| `{entry.event}` | {entry.level} | {', '.join(entry.fields)} | {entry.means} | {entry.do} |"
            for entry in entries(role)
        ]
        head = ["| event | level | with | means | do |", "| --- | --- | --- | --- | --- |"]
        parts.append("\n".join([f"\n## {title}\n", *head, *rows, ""]))
    return "".join(parts)
