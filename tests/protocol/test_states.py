"""The transition table."""

import pytest

from protocol.states import TRANSITIONS, Priority, State, may_follow

LIVING = [State.DELAYED, State.QUEUED, State.ASSIGNED, State.RUNNING]
ENDS = [State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED]


def test_the_table_names_every_state() -> None:
    assert set(TRANSITIONS) == set(State) == {*LIVING, *ENDS}


@pytest.mark.parametrize("state", State)
def test_four_states_are_ends(state: State) -> None:
    assert state.terminal == (state in ENDS)


@pytest.mark.parametrize("state", State)
def test_two_states_are_held(state: State) -> None:
    assert state.held == (state in (State.ASSIGNED, State.RUNNING))


@pytest.mark.parametrize("state", LIVING)
def test_a_living_job_can_be_ended_without_its_worker(state: State) -> None:
    assert all(may_follow(state, end) for end in (State.CANCELLED, State.EXPIRED, State.FAILED))


def test_only_a_held_job_completes() -> None:
    assert [state for state in State if may_follow(state, State.COMPLETED)] == [State.ASSIGNED, State.RUNNING]


def test_a_completed_job_never_runs_again() -> None:
    assert not any(may_follow(State.COMPLETED, state) for state in State)


@pytest.mark.parametrize("end", [State.FAILED, State.CANCELLED, State.EXPIRED])
def test_an_end_without_a_result_is_left_by_a_new_submit_only(end: State) -> None:
    assert {state for state in State if may_follow(end, state)} == {State.QUEUED, State.DELAYED}


def test_priorities_stand_in_the_order_of_urgency() -> None:
    assert list(Priority) == ["high", "medium", "low"]
    assert [priority.online for priority in Priority] == [True, False, False]
