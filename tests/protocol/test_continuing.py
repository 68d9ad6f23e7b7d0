"""A later attempt's frames go on from an earlier one's: `start` hands the text out, `emit` joins what follows."""

from protocol import frames, functions, keys
from protocol.functions import STALE, UPROOTED
from protocol.handle import Handle
from protocol.messages import Frame, Position
from protocol.states import State
from tests.support.builders import completed
from tests.support.driver import Driver


def chunk(text: str) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


def go_on(driver: Driver, handle: Handle, attempt: int, seq: int, after: Position | None, text: str = "y") -> int:
    return driver.run(functions.emit(handle, attempt, "w1", seq, [chunk(text)], tokens=3, after=after))


def given_back(driver: Driver, texts: str = "ab") -> tuple[Handle, int]:
    """A job that has said this, a frame a letter, and was given back; its first attempt."""
    handle, attempt = driver.running()
    for seq, text in enumerate(texts, 1):
        driver.emit(handle, attempt, seq, text=text)
    assert driver.run(functions.requeue(handle, attempt, "w1")) == "ok"
    return handle, attempt


def started(driver: Driver, handle: Handle) -> tuple[int, tuple[Frame, ...]]:
    attempt = driver.assign(handle)
    assert isinstance(attempt, int)
    start = driver.start(handle, attempt)
    assert start
    return attempt, start.said


def test_the_first_attempt_gets_no_text(driver: Driver) -> None:
    driver.lead()
    driver.join()
    handle = driver.submit().handle
    assert started(driver, handle)[1] == ()


def test_start_hands_out_what_was_said(driver: Driver) -> None:
    handle, first = given_back(driver)
    second, said = started(driver, handle)
    assert [frame.position for frame in said] == [(first, 1), (first, 2)]
    assert "".join(frame.text for frame in said) == "ab"
    again = driver.start(handle, second)
    assert again
    assert again.said == said


def test_frames_go_on_over_attempts(driver: Driver) -> None:
    handle, first = given_back(driver)
    second, _ = started(driver, handle)
    assert go_on(driver, handle, second, 3, (first, 2), "c") == 3
    assert go_on(driver, handle, second, 3, (first, 2), "c") == 3
    assert go_on(driver, handle, second, 4, None, "d") == 4
    assert [frame.id for frame in driver.log(handle)] == [f"{first}-1", f"{first}-2", f"{second}-3", f"{second}-4"]
    driver.run(functions.requeue(handle, second, "w1"))
    third, said = started(driver, handle)
    assert "".join(frame.text for frame in said) == "abcd"
    assert [(frame.after, frame.tokens) for frame in said] == [(None, 0), (None, 0), ((first, 2), 3), (None, 3)]
    assert go_on(driver, handle, third, 5, (second, 4), "e") == 5
    assert driver.run(functions.finish(completed(handle, third, "w1", 5))).accepted
    assert driver.log(handle)[-1] == Frame(third, 6, seal=State.COMPLETED)


def test_an_attempt_that_starts_over_leaves_its_text_alone(driver: Driver) -> None:
    handle, _ = given_back(driver)
    second, _ = started(driver, handle)
    assert driver.emit(handle, second, 1, text="new") == 1
    driver.run(functions.requeue(handle, second, "w1"))
    _, said = started(driver, handle)
    assert [frame.id for frame in said] == [f"{second}-1"]


def test_a_frame_goes_on_only_from_the_end_of_the_log(driver: Driver) -> None:
    handle, first = given_back(driver)
    second, _ = started(driver, handle)
    before = driver.snapshot()
    assert go_on(driver, handle, second, 2, (first, 1)) == UPROOTED
    assert go_on(driver, handle, second, 3, (first + 7, 2)) == UPROOTED
    assert go_on(driver, handle, second, 4, (first, 2)) == 2
    assert go_on(driver, handle, second, 4, None) == 0
    assert driver.run(functions.emit(handle, second, "other", 3, [], after=(first, 2))) == STALE
    assert driver.snapshot() == before
    driver.redis.delete(keys.tokens(handle))
    assert go_on(driver, handle, second, 3, (first, 2)) == UPROOTED


def test_a_text_whose_beginning_was_trimmed_is_none(driver: Driver) -> None:
    handle, first = given_back(driver, "abc")
    driver.redis.xdel(keys.tokens(handle), f"{first}-1")
    assert started(driver, handle)[1] == ()


def test_a_text_with_a_hole_or_garbage_is_none(driver: Driver) -> None:
    handle, first = given_back(driver, "abc")
    driver.redis.xdel(keys.tokens(handle), f"{first}-2")
    second, said = started(driver, handle)
    assert said == ()
    driver.redis.xadd(keys.tokens(handle), {"f": b"garbage"}, id=f"{first}-9")
    again = driver.start(handle, second)
    assert again
    assert again.said == ()


def test_a_text_of_more_frames_than_one_call_reads_is_none(driver: Driver) -> None:
    handle, attempt = driver.running()
    driver.emit(handle, attempt, 1)
    pipe = driver.redis.pipeline(transaction=False)
    for seq in range(2, 10_002):
        pipe.xadd(keys.tokens(handle), {"f": b"[]"}, id=f"{attempt}-{seq}")
    pipe.execute()
    start = driver.start(handle, attempt)
    assert start
    assert start.said == ()
    driver.redis.xdel(keys.tokens(handle), f"{attempt}-10001")
    start = driver.start(handle, attempt)
    assert start
    assert len(start.said) == 10_000


def test_a_new_run_over_an_old_one_begins_with_nothing(driver: Driver) -> None:
    handle, _ = given_back(driver)
    driver.cancel()
    driver.submit(nonce="again")
    assert started(driver, handle)[1] == ()


def test_payloads_say_more_only_where_there_is_more() -> None:
    assert frames.encode([chunk("a")]).startswith(b"[")
    for tokens, after in ((4, None), (0, (3, 7)), (4, (3, 7))):
        payload = frames.encode([chunk("a")], tokens, after)
        assert not frames.is_seal(b"5-8 " + payload)
        assert frames.decode(b"5-8", payload) == Frame(5, 8, (chunk("a"),), tokens=tokens, after=after)
    payload = frames.encode([chunk("a")], [7, 9])
    assert frames.decode(b"5-8", payload) == Frame(5, 8, (chunk("a"),), ids=(7, 9))
    assert frames.is_seal(b'5-8 {"seal":"completed"}')
