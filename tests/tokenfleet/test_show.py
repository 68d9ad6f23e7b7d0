"""What the demo shows, in a terminal and elsewhere."""

import io

import pytest
from rich.console import Console

from protocol.messages import WorkerRecord
from tokenfleet.demo.show import LiveView, PlainView, View, view_for


def a_console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, width=100, force_terminal=terminal, highlight=False), file


def play(view: View) -> None:
    """A short demo."""
    with view:
        view.note("the fleet is up")
        view.scene.rows_in, view.scene.rows_out, view.scene.queued = 24, 5, 11
        view.scene.workers = [WorkerRecord(id="w", label="worker-1", state="active", slots=4, held=3)]
        view.refresh()
        view.scene.question = "Capital?"
        for piece in ("It is ", "Paris", "\x1b[2J"):
            view.chat(piece)
        view.scene.answered = True
        view.note("overtook 9")


@pytest.mark.parametrize(("terminal", "kind"), [(True, LiveView), (False, PlainView)])
def test_the_view_fits_the_output(terminal: bool, kind: type[View]) -> None:
    assert isinstance(view_for(a_console(terminal=terminal)[0]), kind)


def test_a_terminal_sees_a_panel() -> None:
    console, file = a_console(terminal=True)
    play(view_for(console))
    text = file.getvalue()
    for part in (
        "the fleet is up",
        "5/24 rows   11 queued",
        "3 of 4 slots",
        "Capital?",
        "It is Paris\\x1b[2J",
        "overtook 9",
    ):
        assert part in text


def test_others_get_lines() -> None:
    console, file = a_console(terminal=False)
    play(view_for(console))
    lines = [line.partition(" s  ")[2] for line in file.getvalue().splitlines()]
    assert lines == ["the fleet is up", "chat    It is Paris\\x1b[2J", "overtook 9"]


def test_progress_comes_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenfleet.demo.show.PLAIN_EVERY_S", 0.0)
    console, file = a_console(terminal=False)
    play(view_for(console))
    assert "batch   5/24 rows, 11 queued, worker-1 3/4" in file.getvalue()
