"""Nothing that runs data as code, no sleeps in tests, no silent exceptions to the rules."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.test_boundaries import imports
from tests.house.tree import EVERYWHERE, PACKAGES, Function, Source, report, sources

UNSAFE_MODULES = frozenset(
    {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "jsonpickle", "marshal", "shelve", "telnetlib", "xmlrpc"}
)
_LOADERS = ("load", "load_all", "full_load", "full_load_all", "unsafe_load", "unsafe_load_all")
UNSAFE_CALLS = frozenset(
    {
        *("eval", "exec", "compile", "__import__", "os.system", "os.popen", "subprocess.getoutput"),
        *(f"yaml.{name}" for name in _LOADERS),
        *("torch.load", "pandas.read_pickle", "pd.read_pickle", "ssl._create_unverified_context", "tempfile.mktemp"),
    }
)
UNSAFE_ARGUMENTS = {"allow_pickle": True, "shell": True, "verify": False, "trust_remote_code": True}
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


def unsafe(source: Source) -> Iterator[str]:
    """What in this file runs data as code, hands text to a shell, or switches a check off."""
    for line, name in imports(source):
        if name.partition(".")[0] in UNSAFE_MODULES:
            yield source.at(line, f"import {name}")
    for call in calls(source.tree):
        name = ast.unparse(call.func)
        given = {word.arg: word.value.value for word in call.keywords if isinstance(word.value, ast.Constant)}
        if name in UNSAFE_CALLS or any(given.get(word) is value for word, value in UNSAFE_ARGUMENTS.items()):
            yield source.at(call.lineno, name)


@pytest.mark.parametrize("folder", EVERYWHERE)
def test_no_module_runs_data_as_code(folder: str) -> None:
    offenders = [offender for source in sources(folder) for offender in unsafe(source)]
    assert not offenders, report(offenders)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "import pickle",
            "from pickle import loads",
            "import dill.source",
            "eval(x)",
            "exec(x)",
            "compile(x, '', 'exec')",
        ),
        *("yaml.load(x)", "yaml.full_load(x)", "torch.load(x)", "numpy.load(x, allow_pickle=True)", "os.system(x)"),
        *(
            "subprocess.run(x, shell=True)",
            "requests.get(x, verify=False)",
            "AutoModel.load(x, trust_remote_code=True)",
        ),
    ],
)
def test_the_gate_sees_each_kind(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.py"
    file.write_text(f"def f(x):\n    {text}\n")
    assert list(unsafe(Source(file, root=tmp_path))), text


@pytest.mark.parametrize(
    "text", ["re.compile(x)", "yaml.safe_load(x)", "wire.loads(x)", "numpy.load(x)", "run(x, shell=False)"]
)
def test_the_gate_lets_what_is_safe_pass(tmp_path: Path, text: str) -> None:
    file = tmp_path / "good.py"
    file.write_text(f"{text}\n")
    assert not list(unsafe(Source(file, root=tmp_path))), text


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
