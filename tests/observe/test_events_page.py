"""Every line that we log: by a name of its own, explained, and about its job."""

import ast
import re

import pytest

from bench.events_page import LEVELS, PACKAGES, PAGE, entries, lines, lines_of, page, texts
from tests.house.tree import report, sources

NAME = re.compile(r"[a-z]+(?:_[a-z]+)*\Z")
BEFORE_AN_ATTEMPT = {"job_refused", "not_assigned"}
"""The job waits in its lane: no attempt is there to be named."""
SHIPPED = lines()


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "make pages"


def test_each_event_is_a_name_that_stands_in_the_code() -> None:
    offenders = [f"{line.at}: {line.event!r}" for line in SHIPPED if line.event is None or not NAME.match(line.event)]
    assert not offenders, report(offenders)


def test_each_event_is_explained_and_nothing_else() -> None:
    said = {(line.role, line.event) for line in SHIPPED}
    assert {(role, event) for role, told in texts().items() for event in told} == said


def test_an_event_has_one_level_in_a_role() -> None:
    levels: dict[tuple[str, str | None], set[str]] = {}
    for line in SHIPPED:
        levels.setdefault((line.role, line.event), set()).add(line.level)
    assert {event for event, found in levels.items() if len(found) > 1} == set()


def test_what_wakes_somebody_says_what_to_do() -> None:
    roles = texts()
    errors = [(role, entry) for role in roles for entry in entries(role) if entry.level == "error"]
    assert len(errors) > 5
    quiet = [f"{role}: {entry.event}" for role, entry in errors if entry.do == "–"]
    assert not quiet, report(quiet)


def test_a_line_about_a_job_names_its_attempt() -> None:
    offenders = [
        f"{line.at}: {line.event}"
        for line in SHIPPED
        if "job" in line.fields and "attempt" not in line.fields and line.event not in BEFORE_AN_ATTEMPT
    ]
    assert not offenders, report(offenders)
    # Other names for it would be missed by whoever looks for a job.
    assert not [line.at for line in SHIPPED if {"request", "ref", "handle", "id"} & set(line.fields)]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("_log.warning('redis_away', why=1)", ("warning", "redis_away", ("why",))),
        ("self._log.bind(a=1); self._log.exception('crashed')", ("error", "crashed", ())),
        ("logger.info(f'told_{word}', job=1, **more)", ("info", None, ("job",))),
        ("log.error(event)", ("error", None, ())),
    ],
)
def test_what_is_seen_in_code(code: str, expected: tuple[str, str | None, tuple[str, ...]]) -> None:
    (line,) = lines_of("worker/x.py", code)
    assert (line.level, line.event, line.fields) == expected
    assert (line.role, line.at) == ("worker", "worker/x.py:1")


def test_nothing_logs_past_our_loggers() -> None:
    """What is called `info` and the like on anything else would stand on no page."""
    known = {line.at for line in SHIPPED}
    past = [
        source.at(node.lineno, node.func.attr)
        for source in sources(*PACKAGES)
        for node in source.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS
        # A job's `info()` tells nothing.
        if node.args and f"{source.name}:{node.lineno}" not in known
    ]
    assert not past, report(past)
