"""Small functions, small files."""

import statistics

import pytest

from tests.house.tree import EVERYWHERE, PACKAGES, Function, Source, report, sources

MAX_FUNCTION_LINES = 50
MAX_FILE_LINES = 250


def length(function: Function) -> int:
    """Lines from `def` to the last statement, docstring included."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def lengths() -> list[int]:
    return sorted(length(function) for source in sources(*PACKAGES) for function in source.functions)


@pytest.mark.parametrize("folder", EVERYWHERE)
def test_no_function_is_long(folder: str) -> None:
    offenders = [
        source.at(function.lineno, f"{function.name} has {length(function)} lines")
        for source in sources(folder)
        for function in source.functions
        if length(function) > MAX_FUNCTION_LINES
    ]
    assert not offenders, report(offenders)


@pytest.mark.parametrize("folder", EVERYWHERE)
def test_no_file_is_long(folder: str) -> None:
    offenders = [
        f"{source.name}: {source.code_lines} lines of code"
        for source in sources(folder)
        if source.code_lines > MAX_FILE_LINES
    ]
    assert not offenders, report(offenders)


@pytest.mark.parametrize(("share", "limit"), [(0.5, 8), (0.9, 25)])
def test_most_functions_are_short(share: float, limit: int) -> None:
    counted = lengths()
    assert counted[int(share * (len(counted) - 1))] <= limit, _longest()


def test_most_files_are_short() -> None:
    counted = [(source.code_lines, source.name) for source in sources(*PACKAGES)]
    assert statistics.median(lines for lines, _ in counted) <= 80, report([f"{n}: {name}" for n, name in counted])


def _longest() -> str:
    def key(pair: tuple[Source, Function]) -> int:
        return -length(pair[1])

    pairs = [(source, function) for source in sources(*PACKAGES) for function in source.functions]
    return report([s.at(f.lineno, f"{f.name} has {length(f)} lines") for s, f in sorted(pairs, key=key)[:40]])
