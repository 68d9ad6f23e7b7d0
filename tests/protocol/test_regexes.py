"""Regexes of JSON schemas are JavaScript's."""

import pytest

from protocol.regexes import compiles


@pytest.mark.parametrize("regex", [r"^\p{L}+$", r"[\u{1F600}-\u{1F64F}]", r"(?<year>\d{4})", r"^a\/b$", ""])
def test_what_javascript_reads_compiles(regex: str) -> None:
    assert compiles(regex)


@pytest.mark.parametrize("regex", ["(", "[", "a{2,1}", "*", r"(?P<1>a)", "(" * 5_000])
def test_what_nobody_reads_does_not(regex: str) -> None:
    assert not compiles(regex)
