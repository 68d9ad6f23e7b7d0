"""The lines of all children in one terminal: a coloured prefix for each, JSON turned into text for people."""

import re
import sys
from datetime import datetime
from typing import Any, TextIO

import click
import structlog

from protocol import wire
from protocol.errors import InvalidRequest
from tokenfleet.terminal import harmless

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta", "bright_green")
WIDEST_NAME = 10
_DROPPED = ("role",)
"""Says what the prefix says."""
_SERVER_LINE = re.compile(r"\d+:(?:[A-Z] \d\d \w{3} \d{4} [\d:.]+ [.*#-]|signal-handler \(\d+\)) (?P<text>.+)")
_UNHELPFUL = ("WARNING Memory overcommit",)
"""About the machine's set-up: no concern of who tries a fleet out."""


class LogView:
    """Writes whole lines, from any thread; `as_json` passes them on for machines, with the child's name in them."""

    def __init__(self, *, as_json: bool = False, stream: TextIO | None = None) -> None:
        """Write to `stream`, stderr when there is none."""
        self._stream = stream or sys.stderr
        self._as_json = as_json
        self._colours = self._stream.isatty()
        self._names: list[str] = []
        self._render = structlog.dev.ConsoleRenderer(colors=self._colours, pad_event_to=24)

    def line(self, name: str, line: str) -> None:
        """Show one line that a child wrote."""
        event = _event(line) or _server_event(line)
        if event and event["event"].startswith(_UNHELPFUL):
            return
        if self._as_json:
            self._write(wire.dumps({"process": name, **(event or {"event": line})}).decode())
        elif line.strip():
            self._write(f"{self._prefix(name)} {self._text(event) if event else harmless(line)}")

    def note(self, name: str, text: str) -> None:
        """Show what happened to a child."""
        self.line(name, wire.dumps({"timestamp": _now(), "level": "warning", "event": text}).decode())

    def _prefix(self, name: str) -> str:
        if name not in self._names:
            self._names.append(name)
        prefix = f"{name:<{WIDEST_NAME}} │"
        colour = COLOURS[self._names.index(name) % len(COLOURS)]
        return click.style(prefix, fg=colour) if self._colours else prefix

    def _text(self, event: dict[str, Any]) -> str:
        shown = {key: value for key, value in event.items() if key not in _DROPPED}
        if moment := _moment(shown.get("timestamp")):
            shown["timestamp"] = moment
        return str(self._render(None, "", shown))

    def _write(self, line: str) -> None:
        # One call a line: lines of several children never mix.
        self._stream.write(f"{line}\n")
        self._stream.flush()


def _event(line: str) -> dict[str, Any] | None:
    """The line as a log event; None when it is plain text."""
    if not line.startswith("{"):
        return None
    try:
        event = wire.loads(line)
    except InvalidRequest:
        return None
    return event if "event" in event else None


def _server_event(line: str) -> dict[str, Any] | None:
    """A line of the server's own log as an event; None when it is none."""
    found = _SERVER_LINE.match(line)
    return {"timestamp": _now(), "level": "info", "event": found["text"]} if found else None


def _now() -> str:
    return datetime.now().astimezone().isoformat()


def _moment(timestamp: object) -> str:
    try:
        return datetime.fromisoformat(str(timestamp)).astimezone().strftime("%H:%M:%S.%f")[:-3]
    except ValueError:
        return ""
