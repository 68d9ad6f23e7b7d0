"""Bugs that the simulation must find: each is a small careless change of the product."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest

from bench.sim.run import Report, simulate
from protocol import library
from protocol.call import Call
from worker.outgoing import Outgoing, Reply


@contextmanager
def dropped_fence() -> Iterator[None]:
    """`emit` takes frames from anybody while the job runs."""
    with _rewritten(
        "job[1] ~= 'running' or job[2] ~= attempt or job[3] ~= worker or not leased(P, worker) then return -1",
        "job[1] ~= 'running' then return -1",
    ):
        yield


@contextmanager
def early_acknowledgement() -> Iterator[None]:
    """A worker takes an outcome for recorded as soon as it has sent it: a lost call loses the job's end."""
    right = Outgoing.calls

    def calls(self: Outgoing) -> list[Call[Reply]]:
        sent = right(self)
        self.over = self._ending is not None
        return sent

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Outgoing, "calls", calls)
        yield


@contextmanager
def forgetful_reclaim() -> Iterator[None]:
    """Emptying the inbox of a dead worker forgets the last job of several."""
    with _rewritten(
        "elseif give_back(job, fault, why, 0, now) == 'ok'",
        "elseif (i < #entries or i == 1) and give_back(job, fault, why, 0, now) == 'ok'",
    ):
        yield


PLANTED: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "a dropped fence": dropped_fence,
    "an acknowledgement before the write": early_acknowledgement,
    "a reclaim that forgets one entry": forgetful_reclaim,
}


def play(seed: int, bug: str | None = None, *, traced: bool = False) -> Report:
    """One seed, under a planted bug or none; without its trace unless that is asked for."""
    with PLANTED[bug]() if bug else nullcontext():
        report = simulate(seed, traced=traced)
    if not traced:
        report.trace = []
    return report


@contextmanager
def _rewritten(right: str, wrong: str) -> Iterator[None]:
    """The function library with one line changed."""
    source = library.source()
    if source.count(right) != 1:
        raise LookupError(f"the function library does not have this line once: {right}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "source", lambda: source.replace(right, wrong))
        yield
