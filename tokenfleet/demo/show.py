"""What the demo shows while it goes on: a live panel in a terminal, plain lines elsewhere."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from protocol.messages import WorkerRecord
from tokenfleet.terminal import harmless

PLAIN_EVERY_S = 2.0


@dataclass(slots=True)
class Scene:
    """What is to be seen at one moment."""

    rows_out: int = 0
    rows_in: int = 0
    tokens_per_s: float = 0.0
    queued: int = 0
    """Jobs in the batch's lane."""
    workers: Sequence[WorkerRecord] = ()
    question: str = ""
    answer: list[str] = field(default_factory=list)
    answered: bool = False


class View(Protocol):
    """Where the demo shows itself; `scene` is changed in place and shown again at the next `refresh`."""

    scene: Scene

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last scene standing."""
        ...

    def note(self, text: str) -> None:
        """Say what happened, in a line that stays."""
        ...

    def chat(self, piece: str) -> None:
        """Show the next piece of the chat's answer at once."""
        ...

    def refresh(self) -> None:
        """Show the scene as it is now."""
        ...


class LiveView:
    """A panel that is drawn again several times a second, below the notes."""

    def __init__(self, console: Console) -> None:
        """Show nothing yet."""
        self.scene = Scene()
        self._begin = time.monotonic()
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=12)

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last picture standing."""
        del kind, error, trace
        self._live.stop()

    def note(self, text: str) -> None:
        """Print above the panel."""
        self._live.console.print(Text.assemble((_clock(self._begin), "dim"), text))

    def chat(self, piece: str) -> None:
        """Add to the answer."""
        self.scene.answer.append(piece)
        self._live.refresh()

    def refresh(self) -> None:
        """Draw now."""
        self._live.refresh()

    def _draw(self) -> RenderableType:
        scene = self.scene
        return Group(*_batch_lines(scene), *_chat_lines(scene)) if scene.rows_in else Text()


class PlainView:
    """Lines: for pipes, logs and screen readers."""

    def __init__(self, console: Console) -> None:
        """Print to the console."""
        self.scene = Scene()
        self._console = console
        self._begin = time.monotonic()
        self._last = self._begin
        self._line_open = False

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Print nothing more."""
        del kind, error, trace

    def note(self, text: str) -> None:
        """Print a line."""
        if self._line_open:
            self._say("\n")
        self._say(f"{_clock(self._begin)}{text}\n")

    def chat(self, piece: str) -> None:
        """Print the piece right behind the one before."""
        if not self.scene.answer:
            self._say(f"{_clock(self._begin)}chat    ")
        self.scene.answer.append(piece)
        self._say(piece)

    def refresh(self) -> None:
        """Print the batch's progress now and then, but never in the middle of the chat's answer."""
        scene, now = self.scene, time.monotonic()
        talking = bool(scene.answer) and not scene.answered
        if now - self._last < PLAIN_EVERY_S or talking or not scene.rows_in:
            return
        self._last = now
        loads = ", ".join(f"{w.label} {w.held}/{w.slots}" for w in scene.workers)
        self.note(f"batch   {scene.rows_out}/{scene.rows_in} rows, {scene.queued} queued, {loads}")

    def _say(self, text: str) -> None:
        self._line_open = not text.endswith("\n")
        self._console.out(harmless(text), end="", highlight=False)
        self._console.file.flush()


def view_for(console: Console) -> View:
    """The view that fits where the console writes to."""
    return LiveView(console) if console.is_terminal else PlainView(console)


def _clock(begin: float) -> str:
    return f"{time.monotonic() - begin:5.1f} s  "


def _batch_lines(scene: Scene) -> list[RenderableType]:
    bar = Table.grid(padding=(0, 2))
    figures = f"{scene.rows_out}/{scene.rows_in} rows   {scene.queued} queued   {scene.tokens_per_s:.0f} tokens/s"
    bar.add_row(Text("batch  medium", "bold"), ProgressBar(scene.rows_in, scene.rows_out, width=24), figures)
    for worker in scene.workers:
        load = ProgressBar(max(1, worker.slots), worker.held, width=24, complete_style="cyan")
        bar.add_row(Text(worker.label), load, f"{worker.held} of {worker.slots} slots")
    return [bar]


def _chat_lines(scene: Scene) -> list[RenderableType]:
    if not scene.question:
        return []
    answer = harmless("".join(scene.answer)) or "…"
    asked = Text.assemble(("chat   high    ", "bold"), scene.question)
    return [Text(), asked, Text.assemble("               ", (answer, "green" if scene.answered else "bold green"))]
