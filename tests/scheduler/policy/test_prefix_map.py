"""Who holds which prefix."""

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from scheduler.policy.prefix_map import SENT_KEPT, TOLD_LATE_MS, PrefixMap

WORKERS = ("a", "b", "c")
BLOCKS = st.lists(st.sampled_from("uvwxyz"), max_size=4, unique=True)


def held(prefixes: PrefixMap, worker: str) -> set[str]:
    return {*prefixes.told_by(worker), *prefixes.sent_to(worker)}


def test_what_was_sent_is_believed_until_the_worker_tells() -> None:
    prefixes = PrefixMap()
    prefixes.assigned("a", ("x", "y"), 0)
    assert held(prefixes, "a") == {"x", "y"}
    prefixes.told("a", frozenset({"x"}), TOLD_LATE_MS)
    assert held(prefixes, "a") == {"x", "y"}  # it may have told before it computed the prompt
    prefixes.told("a", frozenset({"x"}), TOLD_LATE_MS + 1)
    assert held(prefixes, "a") == {"x"}
    assert set(prefixes.holders) == {"x"}


def test_what_is_sent_again_stays() -> None:
    prefixes = PrefixMap()
    prefixes.assigned("a", ("x", "y"), 0)
    prefixes.assigned("a", ("x",), 2_000)
    prefixes.told("a", frozenset(), TOLD_LATE_MS + 1_000)
    assert held(prefixes, "a") == {"x"}


def test_it_is_bounded() -> None:
    prefixes = PrefixMap()
    for n in range(SENT_KEPT + 10):
        prefixes.assigned("a", (f"{n}",), n)
    assert len(prefixes.sent_to("a")) == len(prefixes.holders) == SENT_KEPT
    assert "9" not in prefixes.holders
    assert "10" in prefixes.holders


@given(
    st.lists(
        st.tuples(st.sampled_from(["assigned", "told", "keep"]), st.sampled_from(WORKERS), BLOCKS, st.integers(0, 4)),
        max_size=40,
    )
)
def test_holders_are_those_that_were_told_or_sent(steps: list[tuple[str, str, list[str], int]]) -> None:
    prefixes, now_ms = PrefixMap(), 0.0
    for step, worker, blocks, seconds in steps:
        now_ms += 1_000 * seconds
        match step:
            case "assigned":
                prefixes.assigned(worker, blocks, now_ms)
            case "told":
                prefixes.told(worker, frozenset(blocks), now_ms)
            case _:
                prefixes.keep({*WORKERS} - {worker})
    expected: dict[str, set[str]] = {}
    for worker in WORKERS:
        for block in held(prefixes, worker):
            expected.setdefault(block, set()).add(worker)
    found: dict[str, Collection[str]] = dict(prefixes.holders)
    assert found == expected
