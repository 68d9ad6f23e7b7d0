"""Own counters beside the reports: they can't drift."""

import math
import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.messages import LoadReport
from scheduler.policy.ledger import Ledger, Sent
from scheduler.policy.view import FLOW_MS, Arrival, Unseen

WORKERS = ("a", "b", "c")
steps = st.lists(
    st.tuples(
        st.sampled_from(["assign", "report", "end", "idle", "keep"]), st.sampled_from(WORKERS), st.integers(0, 40)
    ),
    max_size=60,
)


def sent(at_ms: float, prompt_tokens: int, kv_tokens: int) -> Sent:
    return Sent(at_ms, prompt_tokens, prompt_tokens / 2, kv_tokens)


def play(ledger: Ledger, actions: list[tuple[str, str, int]]) -> dict[str, set[int]]:
    """Do the actions; returns what each worker must still have, by the plainest bookkeeping."""
    open_attempts: dict[str, set[int]] = {name: set() for name in WORKERS}
    taken = dict.fromkeys(WORKERS, 0)
    for attempt, (action, name, number) in enumerate(actions, start=1):
        match action:
            case "assign":
                ledger.assigned(name, attempt, sent(attempt, attempt, attempt + 1))
                open_attempts[name] |= {attempt} if attempt > taken[name] else set()
            case "report":
                ledger.reported(name, LoadReport(taken=number))
                taken[name] = max(taken[name], number)
                open_attempts[name] = {n for n in open_attempts[name] if n > number}
            case "end":
                ledger.ended(name, number)
                open_attempts[name].discard(number)
            case "idle":
                ledger.idle(name)
                open_attempts[name].clear()
            case _:
                ledger.keep([name])
                open_attempts |= {other: set() for other in WORKERS if other != name}
                taken |= {other: 0 for other in WORKERS if other != name}
    return open_attempts


@given(steps)
def test_it_counts_exactly_what_no_report_contains(actions: list[tuple[str, str, int]]) -> None:
    ledger = Ledger()
    for name, attempts in play(ledger, actions).items():
        prompt, arrivals = sum(attempts), tuple(Arrival(n, n, n / 2) for n in sorted(attempts))
        assert ledger.unseen(name) == Unseen(len(attempts), prompt, prompt + len(attempts), arrivals)
    assert len(ledger) == sum(ledger.unseen(name).jobs for name in WORKERS)
    assert ledger.started == sum(action == "assign" for action, _, _ in actions)


@given(steps)
def test_after_reports_of_all_everything_is_zero(actions: list[tuple[str, str, int]]) -> None:
    ledger = Ledger()
    play(ledger, actions)
    for name in WORKERS:
        ledger.reported(name, LoadReport(taken=len(actions)))
    assert all(ledger.unseen(name) == Unseen() for name in WORKERS)


def test_a_report_that_overtakes_the_assignment_counts() -> None:
    ledger, left = Ledger(), Unseen(1, 30, 50, (Arrival(6, 30, 15),))
    ledger.reported("a", LoadReport(taken=7))
    ledger.assigned("a", 7, sent(5, 100, 200))
    ledger.assigned("a", 8, sent(6, 30, 50))
    assert ledger.unseen("a") == left
    ledger.reported("a", LoadReport(taken=3))  # an older one, late
    assert ledger.unseen("a") == left


def test_what_came_lately_fades_whether_a_report_contains_it_or_not() -> None:
    ledger = Ledger()
    assert ledger.flow("a").share(5) == 0
    ledger.assigned("a", 7, sent(1_000, 100, 200))
    ledger.reported("a", LoadReport(taken=7))
    assert ledger.flow("a").share(1_000) == pytest.approx(50 / FLOW_MS)
    assert ledger.flow("a").share(1_000 + FLOW_MS) == pytest.approx(50 / FLOW_MS / math.e)
    # The clock went back: it fades all the same.
    assert ledger.flow("a").share(1_000 - 3_600_000) == pytest.approx(0)
    ledger.assigned("a", 8, sent(1_000 + FLOW_MS, 20, 40))
    assert ledger.flow("a").share(1_000 + FLOW_MS) == pytest.approx((50 / math.e + 10) / FLOW_MS)
    ledger.keep([])
    assert ledger.flow("a").share(1_000 + FLOW_MS) == 0


class Fleet:
    """Jobs that come, are tried again and are cancelled, on workers that report late or die; a ledger beside them."""

    def __init__(self, seed: int) -> None:
        self.ledger, self._rng = Ledger(), random.Random(seed)
        self._held: defaultdict[str, list[int]] = defaultdict(list)
        self._named = 8
        self._workers = [f"w{n}" for n in range(self._named)]
        self._attempt = 0
        # What workers sent and the dispatcher has not read yet: (worker, taken); or an end (worker, -attempt).
        self._news: list[tuple[str, int]] = []

    @property
    def _any(self) -> str:
        return self._rng.choice(self._workers)

    def start(self) -> None:
        self._attempt += 1
        worker = self._any
        self._held[worker].append(self._attempt)
        self.ledger.assigned(worker, self._attempt, sent(self._attempt, 100, 200))

    def report(self) -> None:
        worker = self._any
        self._news.append((worker, max(self._held[worker], default=0)))

    def end(self) -> None:
        """Finished, failed or cancelled."""
        worker = self._any
        if self._held[worker]:
            place = self._rng.randrange(len(self._held[worker]))
            self._news.append((worker, -self._held[worker].pop(place)))

    def die(self) -> None:
        """Its jobs are tried again elsewhere; a new worker comes in its place. Its last news may still be under way."""
        worker = self._workers.pop(self._rng.randrange(len(self._workers)))
        self._workers.append(f"w{self._named}")
        self._named += 1
        retries = len(self._held.pop(worker, ()))
        self.ledger.keep(self._workers)
        for _ in range(retries):
            self.start()

    def read(self) -> None:
        """The dispatcher reads some news, in any order; those of the dead are dropped with their hashes."""
        self._rng.shuffle(self._news)
        for _ in range(self._rng.randrange(len(self._news) + 1)):
            worker, number = self._news.pop()
            if worker in self._workers and number < 0:
                self.ledger.ended(worker, -number)
            elif worker in self._workers:
                self.ledger.reported(worker, LoadReport.model_construct(taken=number))


def test_after_many_jobs_with_cancels_retries_and_deaths_nothing_is_left() -> None:
    fleet, rng = Fleet(seed=1), random.Random(2)
    moves = [fleet.start] * 60 + [fleet.end] * 75 + [fleet.report] * 12 + [fleet.read] * 8 + [fleet.die]
    while fleet.ledger.started < 100_000:
        rng.choice(moves)()
    assert 0 < len(fleet.ledger) < 1_000
    while any(fleet._held.values()):
        fleet.end()
    while fleet._news:
        fleet.read()
    assert len(fleet.ledger) == 0


def test_a_report_that_comes_after_a_death_brings_nothing_back() -> None:
    ledger = Ledger()
    ledger.assigned("a", 1, sent(0, 10, 20))
    ledger.keep(())
    ledger.reported("a", LoadReport(taken=1))
    ledger.ended("a", 1)
    assert len(ledger) == 0
