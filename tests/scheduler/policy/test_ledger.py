"""Own counters beside the reports: they can't drift."""

from hypothesis import given
from hypothesis import strategies as st

from protocol.messages import LoadReport
from scheduler.policy.ledger import Ledger
from scheduler.policy.view import Unseen

WORKERS = ("a", "b", "c")
steps = st.lists(
    st.tuples(
        st.sampled_from(["assign", "report", "end", "idle", "keep"]), st.sampled_from(WORKERS), st.integers(0, 40)
    ),
    max_size=60,
)


def play(ledger: Ledger, actions: list[tuple[str, str, int]]) -> dict[str, set[int]]:
    """Do the actions; returns what each worker must still have, by the plainest bookkeeping."""
    open_attempts: dict[str, set[int]] = {name: set() for name in WORKERS}
    taken = dict.fromkeys(WORKERS, 0)
    for attempt, (action, name, number) in enumerate(actions, start=1):
        match action:
            case "assign":
                ledger.assigned(name, attempt, attempt, attempt + 1)
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
        prompt = sum(attempts)
        assert ledger.unseen(name) == Unseen(len(attempts), prompt, prompt + len(attempts))
    assert ledger.started == sum(action == "assign" for action, _, _ in actions)


@given(steps)
def test_after_reports_of_all_everything_is_zero(actions: list[tuple[str, str, int]]) -> None:
    ledger = Ledger()
    play(ledger, actions)
    for name in WORKERS:
        ledger.reported(name, LoadReport(taken=len(actions)))
    assert all(ledger.unseen(name) == Unseen() for name in WORKERS)


def test_a_report_that_overtakes_the_assignment_counts() -> None:
    ledger = Ledger()
    ledger.reported("a", LoadReport(taken=7))
    ledger.assigned("a", 7, 100, 200)
    ledger.assigned("a", 8, 30, 50)
    assert ledger.unseen("a") == Unseen(1, 30, 50)
    ledger.reported("a", LoadReport(taken=3))  # an older one, late
    assert ledger.unseen("a") == Unseen(1, 30, 50)
