"""The event loop of a role: what exists when it begins is never looked through again."""

import subprocess
import sys

WORK = """
import gc
from protocol import event_loop

async def work():
    return gc.get_freeze_count(), gc.get_threshold()[0], len(gc.get_objects())

frozen, young, looked_through = event_loop.run(work())
assert young == event_loop.YOUNG
assert frozen > 10 * looked_through, (frozen, looked_through)
"""


def test_the_collector_leaves_alone_what_a_role_begins_with() -> None:
    subprocess.run([sys.executable, "-c", WORK], check=True)
