"""A role that was started by `up` ends when `up` does, however that ends."""

import os
import signal
import threading
import time

from tokenfleet.up.commands import PARENT_PIPE

SECOND_SIGNAL_S = 0.5
LAST_SIGNAL_S = 5.0


def end_with_parent() -> None:
    """Where `up` started us, watch stdin: it closes when the parent is gone."""
    if os.environ.get(PARENT_PIPE) == "1":
        threading.Thread(target=_watch, name="parent-watch", daemon=True).start()


def _watch() -> None:
    while os.read(0, 4096):
        pass
    # Redis ends too: nothing could be handed back, so no time is given to finish.
    me = os.getpid()
    os.kill(me, signal.SIGTERM)
    time.sleep(SECOND_SIGNAL_S)
    os.kill(me, signal.SIGTERM)
    time.sleep(LAST_SIGNAL_S)
    os.kill(me, signal.SIGKILL)
