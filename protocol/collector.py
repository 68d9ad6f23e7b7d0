"""Python's cyclic garbage collector in a process that serves for long."""

import gc

YOUNG = 10_000
"""So many objects more than were freed begin a collection of the young ones. Python's own 700 come with a few tokens;
nearly all that ours make is freed without it."""


def settle() -> None:
    """Call once a role is about to serve: what is there by then is looked at no more.

    Most of it, its code, lives as long as the process does; to go through all of it stops everything for 25 ms or more,
    each few hundred jobs.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG)
