"""Named places in the code at which a process can be made to end itself: tests aim their kills with them.

Off unless the environment names some, as in TOKENFLEET_FAILPOINTS="worker.before_finish=kill@2": at the second reach.
"""

import os
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from protocol.errors import SetupError
from protocol.log import get_logger

VARIABLE = "TOKENFLEET_FAILPOINTS"
POINTS = frozenset(
    {
        "producer.before_submit",
        "producer.after_submit",
        "producer.in_line",
        "producer.before_commit",
        "producer.after_commit",
        "scheduler.before_read",
        "scheduler.in_window",
        "scheduler.before_assign",
        "scheduler.after_assign",
        "worker.before_start",
        "worker.before_engine",
        "worker.mid_stream",
        "worker.before_finish",
        "worker.after_finish",
    }
)
"""`after_…`: Redis has answered, and nobody else knows of it yet."""
EXIT_CODE = 86
_ITEM = re.compile(r"(?P<point>[a-z_.]+)(?::(?P<about>[^=@,]+))?=(?P<action>[a-z]+)(?:@(?P<nth>[1-9][0-9]*))?")
_ACTIONS: Mapping[str, Callable[[], None]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "exit": lambda: os._exit(EXIT_CODE),
}
_log = get_logger("failpoints")


@dataclass(slots=True)
class _Armed:
    """What happens at one point, after so many more reaches; `about` names the only job that counts."""

    action: str
    left: int
    about: str


_armed: dict[str, _Armed] = {}


def reach(point: str, about: str = "") -> None:
    """The code stands at a point, with a job of this id. Does nothing unless the point is armed."""
    if _armed:
        _act(point, about)


def arm() -> None:
    """Read the environment again; each role does once at its start. Says so loudly when a point is armed.

    Raises:
        SetupError: a point or an action that there is not.
    """
    text = os.environ.get(VARIABLE, "")
    _armed.clear()
    _armed.update(_parsed(text) if text else {})
    if _armed:
        _log.warning("failpoints_on", points=text)


def _parsed(text: str) -> dict[str, _Armed]:
    found = {}
    for item in text.split(","):
        match = _ITEM.fullmatch(item.strip())
        if match is None or match["point"] not in POINTS or match["action"] not in _ACTIONS:
            msg = f"{VARIABLE}: {item!r} is no POINT[:JOB]=ACTION[@N]"
            raise SetupError(msg, f"Points: {', '.join(sorted(POINTS))}. Actions: {', '.join(_ACTIONS)}.")
        found[match["point"]] = _Armed(match["action"], int(match["nth"] or 1), match["about"] or "")
    return found


def _act(point: str, about: str) -> None:
    armed = _armed.get(point)
    if armed is None or armed.about not in ("", about):
        return
    armed.left -= 1
    if armed.left == 0:
        _log.warning("failpoint_reached", point=point, action=armed.action)
        _ACTIONS[armed.action]()
