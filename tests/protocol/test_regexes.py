"""Regexes of JSON schemas are JavaScript's."""

import gc
import time

import pytest

from protocol.regexes import compiles, may_compile

WIDE = "(?i)" + "[\x00-\uffff]" * 1_600
"""Python takes 14 s to compile it."""
LONG = {
    "wide classes": WIDE,
    "open brackets": "[" * 8_192,
    "open parentheses": "(" * 8_192,
    "nested groups": "(" * 4_000 + ")" * 4_000,
    "open braces": "a{" * 4_096,
    "digits": "a{" + "9" * 8_000 + "}",
    "names": "(?P<" * 2_048,
    "flags": "(?" + "i" * 8_190,
    "comments": "(?#" * 2_730,
    "looks behind": "(?<=a{1,3})" * 744,
    "alternatives": "a|" * 4_096,
}


@pytest.mark.parametrize("regex", [r"^\p{L}+$", r"[\u{1F600}-\u{1F64F}]", r"(?<year>\d{4})", r"^a\/b$", "", WIDE])
def test_what_javascript_reads_compiles(regex: str) -> None:
    assert compiles(regex)
    assert may_compile(regex)


@pytest.mark.parametrize(
    "regex",
    [
        *(r"^[\w-\.]+@([\w-]+\.)+[\w-]{2,4}$", r"^[\w-.]+$", r"(?<y>\d)\k<y>", r"(?<=\$\d+)x", r"\cA", "[^]", "[]"),
        *("[](]", "[]a]", "{", "a{", "a{,}", "{a}", "a{x", "]", "}", "a{2,2}", "a{02,2}", "a{9,10}", "x{99999999999}"),
        *(r"[[a-z]&&[^aeiou]]", "(?>a)b++", "(?i:a)", "(?#()a", "(?(1)a|b)", "(?:a|)", "()", r"\(", r"[\]]", "[(*]"),
        *(
            "^*",
            "(?=a)*",
            "a{2}{3}",
            "a*?",
            "(?x) a # (",
            "|",
            "(?P<1>a)",
            r"\u{12}",
            "(?<!a)b",
            "a{" + "9" * 5_000 + "}",
        ),
    ],
)
def test_what_some_dialect_reads_may_compile(regex: str) -> None:
    assert may_compile(regex)


@pytest.mark.parametrize(
    "regex",
    [
        *("(", "[", "a{2,1}", "*", "(" * 5_000, ")", "a)(", "(?:a", "[a", r"[a\]", "[^", "\\", "(?P<a>b", "(?#a"),
        *("|*", "a|+", "(*a)", "(?:*)", "(?<n>?)", "(?i:+)", "{2}", "({1,2})", "a{10,9}", "a{" + "9" * 5_000 + ",1}"),
    ],
)
def test_what_nobody_reads_does_not(regex: str) -> None:
    assert not compiles(regex)
    assert not may_compile(regex)


@pytest.mark.parametrize("regex", [r"(?P<1>a)", r"(?<=a+)b", r"(?:x(?<!a|bc))+", r"^[\w-.]+$", "x{99999999999}"])
def test_what_python_does_not_read_does_not_compile(regex: str) -> None:
    assert not compiles(regex)


@pytest.mark.parametrize("regex", LONG.values(), ids=LONG)
def test_no_regex_takes_long(regex: str) -> None:
    gc.collect()  # else it might clean up here after other tests
    began = time.thread_time()
    compiles(regex)
    may_compile(regex)
    assert time.thread_time() - began < 0.5
