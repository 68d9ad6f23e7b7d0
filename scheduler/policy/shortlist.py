"""Which workers a round looks at for one job: all of a small fleet, of a large one those that may well be the best."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import islice

from scheduler.policy.filters import may_take
from scheduler.policy.policy import Policy
from scheduler.policy.view import FleetView, JobView
from scheduler.policy.worker import Worker

MANY = 32
"""From more open workers on a round does not look at all of them for each job."""
LOOKS, HOLDERS = 16, 8
"""It looks at so many, half of them the best for a short job and half for a long one, and at so many others that hold
the job's prefix."""


class Everybody:
    """Looks at all: in a small fleet, or for a policy that picks by more than its score.

    Args:
        workers: all that take jobs, full ones too.
        room: those of them that have room, by id; the round takes out whoever becomes full.
    """

    def __init__(self, workers: Sequence[Worker], room: Mapping[str, Worker]) -> None:
        self._workers, self._room = workers, room

    def with_room(self, job: JobView) -> list[Worker]:
        """Those that may take the job now."""
        return [worker for worker in self._room.values() if may_take(worker, job)]

    def able(self, job: JobView) -> list[Worker]:
        """Those that may take the job, full ones too."""
        return [worker for worker in self._workers if may_take(worker, job)]

    def given(self, job: JobView, worker: Worker) -> None:
        """The worker took the job: it is another one now."""


class _Ranking:
    """The workers sorted by the score of one job; ties in their own order."""

    def __init__(self, workers: Sequence[Worker], policy: Policy, job: JobView) -> None:
        self._workers, self._policy, self._job = workers, policy, job
        self._places = {worker.id: place for place, worker in enumerate(workers)}
        self._keys = [(policy.score(job, worker), place) for place, worker in enumerate(workers)]
        self._sorted = sorted(self._keys)

    def moved(self, worker: Worker) -> None:
        """Put the worker where it belongs now."""
        place = self._places[worker.id]
        del self._sorted[bisect_left(self._sorted, self._keys[place])]
        self._keys[place] = (self._policy.score(self._job, worker), place)
        insort(self._sorted, self._keys[place])

    def best(self, job: JobView, among: AbstractSet[str]) -> Iterator[Worker]:
        """Those among the named that may take the job, the best first; one that takes no jobs has no rank."""
        if len(among) <= MANY:
            keys = sorted(self._keys[self._places[name]] for name in among if name in self._places)
        else:
            keys = self._sorted
        for _, place in keys:
            worker = self._workers[place]
            if worker.id in among and may_take(worker, job):
                yield worker


class Shortlist(Everybody):
    """Keeps the workers sorted by the scores of a short and a long job, and knows who holds a prefix.

    Two sizes, since what is best for a short prompt (little to wait for) need not be so for a long one (few to share
    with). A look costs nearly the same whatever the fleet's size.
    """

    def __init__(self, workers: Sequence[Worker], room: Mapping[str, Worker], policy: Policy, view: FleetView) -> None:
        super().__init__(workers, room)
        self._everybody = {worker.id: worker for worker in workers}
        self._rankings = [_Ranking(workers, policy, job) for job in _short_and_long(view.lanes)]
        self._holders = _holders(view) if view.holders is None else view.holders
        self._holds_now: dict[str, set[str]] = {}

    def with_room(self, job: JobView) -> list[Worker]:
        """The best of those that may take the job now, and those of them that hold its prefix."""
        return self._look(job, self._room)

    def able(self, job: JobView) -> list[Worker]:
        """The same of all, full ones too."""
        return self._look(job, self._everybody)

    def given(self, job: JobView, worker: Worker) -> None:
        """Move the worker to its new ranks."""
        for ranking in self._rankings:
            ranking.moved(worker)
        for block in job.spec.prefix:
            self._holds_now.setdefault(block, set()).add(worker.id)

    def _look(self, job: JobView, among: Mapping[str, Worker]) -> list[Worker]:
        found: dict[str, Worker] = {}
        for ranking in self._rankings:
            found |= {worker.id: worker for worker in islice(ranking.best(job, among.keys()), LOOKS // 2)}
        most = len(found) + HOLDERS
        # The longest match first: a first block that everybody holds tells nothing.
        for names in self._holding(job):
            if len(found) < most and not names <= found.keys():
                holding = self._rankings[0].best(job, names)
                fresh = (worker for worker in holding if worker.id in among and worker.id not in found)
                found |= {worker.id: worker for worker in islice(fresh, most - len(found))}
        return list(found.values())

    def _holding(self, job: JobView) -> Iterator[AbstractSet[str]]:
        """Who holds the job's last block, the one before that, and so on."""
        for block in reversed(job.spec.prefix):
            for holders in (self._holders, self._holds_now):
                if block in holders:
                    yield holders[block]


def _short_and_long(lanes: Sequence[Sequence[JobView]]) -> Iterator[JobView]:
    """The jobs that are longer than a tenth, and than nine tenths of all, with no prefix."""
    jobs = sorted((job for lane in lanes for job in lane), key=lambda job: job.spec.prompt_tokens)
    for tenth in (1, 9):
        job = jobs[len(jobs) * tenth // 10]
        yield replace(job, spec=job.spec.model_copy(update={"prefix": ()}))


def _holders(view: FleetView) -> Mapping[str, AbstractSet[str]]:
    """Who holds which of the jobs' blocks, by the workers' own sets."""
    wanted = {block for lane in view.lanes for job in lane for block in job.spec.prefix}
    holders: dict[str, set[str]] = {}
    for worker in view.workers if wanted else ():
        for block in (wanted & worker.prefixes) | {block for block in wanted if block in worker.sent}:
            holders.setdefault(block, set()).add(worker.id)
    return holders
