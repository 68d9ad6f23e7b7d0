"""Nothing that runs data as code, no sleeps in tests, no silent exceptions to the rules."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.test_boundaries import imports
from tests.house.tree import EVERYWHERE, PACKAGES, Function, Source, report, sources

UNSAFE_MODULES = frozenset({"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve"})
UNSAFE_CALLS = frozenset({"eval", "exec", "yaml.load", "yaml.unsafe_load", "torch.load", "os.system"})
CODED = re.compile(
    r"type:\s*ignore\[[^\]]+\]|noqa:\s*[A-Z]+\d+(?:[,\s]+[A-Z]+\d+)*|pragma:\s*no\s*(?:cover|branch)|fmt:\s*\w+"
)
BARE = re.compile(r"#\s*(?:type:\s*ignore(?!\[)|(?:ruff:\s*|flake8:\s*)?noqa(?!:\s*[A-Z]+\d)|mypy:)")
REASON = re.compile(r"[A-Za-z]{3,}")


def calls(node: ast.AST) -> Iterator[ast.Call]:
    return (child for child in ast.walk(node) if isinstance(child, ast.Call))


def waits(call: ast.Call) -> bool:
    """True for `sleep(x)` in any spelling, but for `sleep(0)`, which only yields."""
    if ast.unparse(call.func).rpartition(".")[2] != "sleep" or not call.args:
        return False
    first = call.args[0]
    return not (isinstance(first, ast.Constant) and first.value == 0)


def polling(source: Source) -> set[ast.Call]:
    """The calls inside `eventually`: the one place that may wait by the clock, with a deadline."""
    helpers = [node for node in source.functions if node.name == "eventually"]
    return {call for helper in helpers for call in calls(helper)}


@pytest.mark.parametrize("folder", EVERYWHERE)
def test_no_module_runs_data_as_code(folder: str) -> None:
    imported = [
        source.at(line, f"import {name}")
        for source in sources(folder)
        for line, name in imports(source)
        if name.partition(".")[0] in UNSAFE_MODULES
    ]
    called = [
        source.at(call.lineno, ast.unparse(call.func))
        for source in sources(folder)
        for call in calls(source.tree)
        if ast.unparse(call.func) in UNSAFE_CALLS
    ]
    assert not imported + called, report(imported + called)


def test_tests_wait_for_conditions_and_never_sleep() -> None:
    offenders = [
        source.at(call.lineno, ast.unparse(call))
        for source in sources("tests")
        for call in set(calls(source.tree)) - polling(source)
        if waits(call)
    ]
    assert not offenders, report(sorted(offenders))


@pytest.mark.parametrize("folder", EVERYWHERE)
def test_every_exception_to_a_rule_names_the_rule_and_a_reason(folder: str) -> None:
    offenders = [
        source.at(line, comment)
        for source in sources(folder)
        for line, comment in source.comments
        if BARE.search(comment) or (CODED.search(comment) and not REASON.search(CODED.sub("", comment)))
    ]
    assert not offenders, report(offenders)


def test_public_names_have_docstrings() -> None:
    found = [pair for source in sources(*PACKAGES) for pair in public(source)]
    missing = [where for where, documented in found if not documented]
    share = 1 - len(missing) / len(found)
    assert share >= 0.85, f"{share:.0%} documented" + report(missing)


def public(source: Source) -> Iterator[tuple[str, bool]]:
    """Public modules, classes, functions and methods, and whether each has a docstring."""
    if source.tree.body:
        yield source.at(1, "module"), ast.get_docstring(source.tree) is not None
    yield from _members(source, source.tree)


def _members(source: Source, parent: ast.Module | ast.ClassDef) -> Iterator[tuple[str, bool]]:
    for node in parent.body:
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
            yield source.at(node.lineno, node.name), ast.get_docstring(node) is not None
            if isinstance(node, ast.ClassDef):
                yield from _members(source, node)
