"""The follower's decisions, without Redis: whatever the channel loses, doubles or reorders, each frame comes once."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.events import Restart, Tokens, Truncated
from producer.follow import Place, Sealed, Step
from protocol.messages import Frame
from protocol.reads import Standing
from protocol.states import State


def frame(attempt: int, seq: int) -> Frame:
    return Frame(attempt, seq, chunks=({"choices": [{"index": 0, "delta": {"content": f"{attempt}-{seq} "}}]},))


def joined(attempt: int, seq: int, after: tuple[int, int]) -> Frame:
    """The first frame of an attempt that goes on with another's text."""
    return Frame(attempt, seq, chunks=frame(attempt, seq).chunks, after=after)


def seal(attempt: int, seq: int, state: State = State.COMPLETED) -> Frame:
    return Frame(attempt, seq, seal=state)


def kinds(steps: Sequence[Step] | None) -> list[str]:
    assert steps is not None
    return [step.id if isinstance(step, Tokens) else type(step).__name__.lower() for step in steps]


def test_frames_in_order_are_delivered_and_seen_ones_dropped() -> None:
    place = Place()
    assert kinds(place.live(frame(3, 1))) == ["3-1"]
    assert kinds(place.live(frame(3, 1))) == []
    assert kinds(place.live(frame(3, 2))) == ["3-2"]
    assert kinds(place.live(frame(3, 1))) == []
    assert place.live(seal(3, 3)) == [Sealed("3-3", alone=False)]


@pytest.mark.parametrize("missed", [frame(3, 4), frame(4, 2), seal(3, 9)])
def test_a_live_frame_with_others_missing_before_it_sends_the_reader_to_the_log(missed: Frame) -> None:
    place = Place(3, 2)
    assert place.live(missed) is None
    assert place == Place(3, 2)


def test_a_new_attempt_after_text_restarts() -> None:
    assert kinds(Place(3, 2).live(frame(4, 1))) == ["restart", "4-1"]
    assert kinds(Place().live(frame(4, 1))) == ["4-1"]


def test_an_old_cursor_meets_a_new_run() -> None:
    assert kinds(Place.after("3-7").logged(frame(9, 1))) == ["restart", "9-1"]


def test_an_attempt_that_goes_on_is_the_same_text() -> None:
    place = Place(3, 7)
    assert kinds(place.live(joined(5, 8, (3, 7)))) == ["5-8"]
    assert kinds(place.live(frame(5, 9))) == ["5-9"]
    assert kinds(place.live(joined(6, 10, (5, 9)))) == ["6-10"]
    assert kinds(place.live(seal(6, 11))) == ["sealed"]


@pytest.mark.parametrize("place", [Place(), Place(3, 5), Place(2, 7), Place(3, 9), Place(4, 7)])
def test_who_has_not_the_text_before_it_reads_the_log(place: Place) -> None:
    assert place.live(joined(5, 8, (3, 7))) is None


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (Place(), ["truncated", "5-8"]),
        (Place(3, 5), ["truncated", "5-8"]),
        # What it has is another text, or one that the store lost.
        (Place(2, 7), ["restart", "truncated", "5-8"]),
        (Place(3, 9), ["restart", "truncated", "5-8"]),
    ],
)
def test_a_log_that_lacks_the_text_before_it(place: Place, told: list[str]) -> None:
    assert kinds(place.logged(joined(5, 8, (3, 7)))) == told


def test_what_is_missing_in_the_log_is_said_once() -> None:
    place = Place(3, 2)
    assert kinds([*place.logged(frame(3, 9)), *place.logged(frame(3, 10))]) == ["truncated", "3-9", "3-10"]
    assert kinds(Place(2, 2).logged(frame(3, 5))) == ["restart", "truncated", "3-5"]


def test_a_seal_without_frames_lets_the_result_serve_as_one() -> None:
    assert Place().live(seal(3, 1)) == [Sealed("3-1", alone=True)]
    assert kinds(Place(2, 4).live(seal(3, 1))) == ["restart", "sealed"]


@pytest.mark.parametrize("state", [State.CANCELLED, State.EXPIRED, State.FAILED])
def test_text_stays_when_a_later_attempt_ended_without_any(state: State) -> None:
    assert kinds(Place(2, 4).live(seal(3, 1, state))) == ["sealed"]


@pytest.mark.parametrize(
    ("place", "steps"),
    [
        (Place(), [Sealed("5-4", alone=True)]),
        (Place(5, 1), [Truncated(), Sealed("5-4", alone=False)]),
        (Place(5, 3), [Sealed("5-4", alone=False)]),
        (Place(5, 4), [Sealed("5-4", alone=False)]),
    ],
)
def test_an_ended_job_without_a_log(place: Place, steps: list[Step]) -> None:
    assert place.without_log(Standing(State.COMPLETED, attempt=5, frames=3)) == steps


def test_an_older_cursor_on_an_ended_job_without_a_log_restarts() -> None:
    assert kinds(Place(4, 9).without_log(Standing(State.COMPLETED, 5, 3))) == ["restart", "sealed"]


def test_a_store_that_lost_its_last_seconds_starts_the_reader_over() -> None:
    place = Place(5, 9)
    assert kinds(place.rewind(Standing(State.RUNNING, 5, 3))) == ["restart"]
    assert place == Place()
    assert Place(5, 4).rewind(Standing(State.COMPLETED, 5, 3)) == []
    assert Place(5, 4).rewind(Standing(State.RUNNING, 6, 0)) == []


def test_after_a_lost_end_another_frame_may_come_in_the_place_of_its_seal() -> None:
    place = Place(5, 3)
    (end,) = place.logged(seal(5, 4))
    assert isinstance(end, Sealed)
    place.unseal(end)
    assert kinds(place.live(frame(5, 4))) == ["5-4"]


@pytest.mark.parametrize("place", [Place(), Place(5, 3), Place(5, 1)])
def test_a_lost_end_that_stood_in_no_log_moves_nobody(place: Place) -> None:
    attempt, seq = place.position
    *_, end = place.without_log(Standing(State.CANCELLED, attempt, 3 if attempt else 0))
    assert isinstance(end, Sealed)
    place.unseal(end)
    assert place.position == (attempt, seq)


def test_who_was_told_to_start_over_does_so_though_that_end_is_lost() -> None:
    place = Place(4, 9)
    restart, end = place.without_log(Standing(State.COMPLETED, 5, 3))
    assert isinstance(restart, Restart)
    assert isinstance(end, Sealed)
    place.unseal(end)
    assert place == Place()


def test_a_store_whose_text_goes_on_from_before_its_loss_starts_the_reader_over() -> None:
    """What the reader has beyond 3-7 is lost, or of an attempt that is: the log's own text begins before it."""
    standing = Standing(State.RUNNING, 5, 8)
    for place in (Place(3, 9), Place(4, 7)):
        assert kinds(place.rewind(standing, joined(5, 8, (3, 7)))) == ["restart"]
        assert place == Place()
    for place in (Place(3, 7), Place(3, 5), Place(2, 9), Place()):
        assert place.rewind(standing, joined(5, 8, (3, 7))) == []


@pytest.mark.parametrize("text", ["5", "a-b", "5-6-7", "-", f"{2**64}-1", " 5-6", "5-6\n"])
def test_a_cursor_that_is_no_frame_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Place.after(text)


def texts_since_restart(steps: Sequence[Step]) -> list[str]:
    restarts = [index for index, step in enumerate(steps) if isinstance(step, Restart)]
    return [step.id for step in steps[restarts[-1] + 1 if restarts else 0 :] if isinstance(step, Tokens)]


def as_written(lengths: Sequence[int], rng: random.Random) -> tuple[list[Frame], list[str]]:
    """The frames of attempts of these lengths, each of which starts over or goes on; and the ids of the last text."""
    log: list[Frame] = []
    text: list[Frame] = []
    for number, length in enumerate(lengths, 1):
        goes_on = bool(text) and length > 0 and rng.random() < 0.5
        if goes_on:
            first = text[-1].seq + 1
            new = [joined(number, first, text[-1].position)]
            new += [frame(number, first + n) for n in range(1, length)]
        else:
            new = [frame(number, seq) for seq in range(1, length + 1)]
        text = [*text, *new] if goes_on else new
        log += new
    return [*log, seal(len(lengths), (text[-1].seq if text else 0) + 1)], [told.id for told in text]


@given(
    st.lists(st.integers(min_value=0, max_value=6), min_size=1, max_size=4),
    st.integers(),
    st.integers(min_value=0, max_value=8),
)
def test_a_channel_that_loses_doubles_and_reorders_changes_nothing(
    lengths: list[int], seed: int, joins_at: int
) -> None:
    """Attempts of some lengths; live frames as a bad channel gives them; the log is whole, as the functions keep it."""
    rng = random.Random(seed)
    log, text = as_written(lengths, rng)
    place, steps = Place(), []
    for written in range(min(joins_at, len(log)), len(log) + 1):
        # What the reader hears now: any frames written so far, old ones again, in any order.
        heard = rng.choices(log[:written], k=rng.randrange(4)) if written else []
        for message in heard:
            delivered = place.live(message)
            if delivered is None or rng.random() < 0.1:
                delivered = [*(delivered or []), *(step for f in log[:written] for step in place.logged(f))]
            steps += delivered
            if any(isinstance(step, Sealed) for step in steps):
                break
    steps += [step for f in log for step in place.logged(f)]
    assert texts_since_restart(steps) == text
    ids = [step.id for step in steps if isinstance(step, Tokens)]
    assert len(ids) == len(set(ids))
    assert [isinstance(step, Sealed) for step in steps].count(True) == 1
    assert isinstance(steps[-1], Sealed)
    assert not any(isinstance(step, Truncated) for step in steps)
