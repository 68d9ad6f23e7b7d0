"""Log lines: JSON for machines, text for people, and never a prompt."""

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from protocol import log

SECRET = "what the user asked"


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(logging, "lastResort", logging.lastResort)
    yield
    structlog.reset_defaults()


def fail_with_a_prompt_at_hand() -> None:
    prompt = SECRET
    raise ValueError(f"{len(prompt)} characters")


def test_lines_are_json_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info")
    log.get_logger("worker").info("job finished", job="pool.0.t.a", attempt=3)
    log.get_logger("worker").debug("unheard")
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    told = json.loads(line)
    assert out == ""
    assert told.pop("timestamp").endswith("Z")
    assert told == {"event": "job finished", "level": "info", "role": "worker", "job": "pool.0.t.a", "attempt": 3}


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_traceback_does_not_show_what_was_in_variables(capsys: pytest.CaptureFixture[str], style: log.Format) -> None:
    log.configure("debug", style)
    try:
        fail_with_a_prompt_at_hand()
    except ValueError:
        log.get_logger("worker").exception("attempt failed")
    told = capsys.readouterr().err
    assert "19 characters" in told
    assert SECRET not in told


@pytest.mark.parametrize(("level", "event"), [("warning", "library_told"), ("error", "library_failed")])
def test_a_librarys_line_is_told_without_its_text(capsys: pytest.CaptureFixture[str], level: str, event: str) -> None:
    log.configure("info")
    fault = (ValueError, ValueError(SECRET), None)
    record = logging.LogRecord("aiohttp", logging.getLevelName(level.upper()), "/x/jar.py", 7, SECRET, (), fault)
    assert logging.lastResort
    logging.lastResort.handle(record)
    (line,) = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert (told["event"], told["level"]) == (event, level)
    assert (told["library"], told["at"]) == ("aiohttp", "jar.py:7")
    assert told["kind"] == "ValueError"
    assert SECRET not in line
