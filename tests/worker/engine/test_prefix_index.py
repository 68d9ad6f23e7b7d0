"""What the prefix index claims, against the plainest model of a cache."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.prefix import PREFIX_CHARS
from worker.engine import prefix_index
from worker.engine.base import PREFIXES_KEPT
from worker.engine.prefix_index import PrefixIndex

BLOCK = 128
CHARS = PREFIX_CHARS[0]
"""Of a prompt of 8 blocks: one a block up to the fourth, then one behind the sixth and the eighth."""
HASHES = ("h0", "h1", "h2", "h3")
CHAIN = list(range(1, 9))
"""1,024 tokens."""


def index(kv_tokens: int = 100 * BLOCK) -> PrefixIndex:
    return PrefixIndex(BLOCK, kv_tokens)


def ended(over: PrefixIndex, session: str = "a", prefix: tuple[str, ...] = HASHES, tokens: int = 1_024) -> None:
    """The prompt has one token for each four characters."""
    over.prompt(session, prefix, 4 * tokens, tokens)


def test_a_prompts_hashes_stand_on_its_blocks() -> None:
    over = index()
    over.stored("a", None, CHAIN)
    assert over.hashes() == frozenset()
    ended(over)
    assert over.hashes() == {"h0", "h1", "h2", "h3"}
    over.removed([8])
    assert over.hashes() == {"h0", "h1", "h2"}
    over.removed([7, 6])
    assert over.hashes() == {"h0", "h1"}


@pytest.mark.parametrize("blocks", range(9))
@pytest.mark.parametrize(("tokens", "ends"), [(1_000, (2, 4, 6, 8)), (1_030, (3, 5, 7, 9)), (100, (1, 1, 1, 1))])
def test_a_hash_is_held_once_all_blocks_with_a_part_of_it_are(blocks: int, tokens: int, ends: tuple[int, ...]) -> None:
    over = index()
    over.stored("a", None, CHAIN[:blocks])
    over.prompt("a", HASHES, 4 * CHARS, tokens)
    assert len(over.hashes()) == sum(end <= blocks for end in ends)


def test_the_end_may_be_told_before_the_blocks() -> None:
    over = index()
    ended(over)
    over.stored("a", None, CHAIN[:4])
    assert over.hashes() == {"h0", "h1"}
    over.stored("a", 4, CHAIN[4:])
    assert len(over.hashes()) == 4


def test_a_prompt_behind_anothers_prefix_stands_on_both() -> None:
    over = index()
    over.stored("a", None, CHAIN[:4])
    over.stored("b", 4, [25, 26, 27, 28])
    ended(over, "b", ("h0", "h1", "x2", "x3"))
    assert over.hashes() == {"h0", "h1", "x2", "x3"}
    over.removed([3])
    assert over.hashes() == {"h0"}


def test_a_prompt_that_was_cached_whole_keeps_its_hashes_young(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_index, "PREFIXES_KEPT", 4)
    over = index()
    over.stored("a", None, CHAIN[:4])
    ended(over, "a", ("h0", "h1"), 512)
    over.stored("b", None, [21, 22, 23, 24])
    ended(over, "b", ("x0", "x1"), 512)
    ended(over, "c", ("h0", "h1"), 512)  # stored nothing
    over.stored("d", None, [31, 32, 33, 34])
    ended(over, "d", ("y0", "y1"), 512)
    assert over.hashes() == {"h0", "h1", "y0", "y1"}


def test_copies_of_a_block_go_one_by_one() -> None:
    over = index()
    over.stored("a", None, CHAIN[:2])
    over.stored("b", None, CHAIN[:2])
    ended(over, "a", ("h0",), 256)
    over.removed([2, 1])
    assert over.hashes() == {"h0"}
    over.removed([2])
    assert over.hashes() == frozenset()


def test_nothing_is_claimed_for_several_prompts_in_one_request() -> None:
    over = index()
    over.stored("a", None, CHAIN)
    over.stored("a", None, [block + 20 for block in CHAIN])
    ended(over)
    assert over.hashes() == frozenset()


def test_blocks_from_before_anybody_listened_are_left_out() -> None:
    over = index()
    over.stored("a", 77, CHAIN)
    ended(over)
    over.removed([77, 3])
    assert over.hashes() == frozenset()


def test_the_same_object_while_nothing_changes() -> None:
    over = index()
    over.stored("a", None, CHAIN)
    ended(over)
    told = over.hashes()
    ended(over, "b")
    over.stored("a", 8, [9])
    over.removed([9, 99])
    assert over.hashes() is told
    over.removed([8])
    assert over.hashes() is not told


def test_cleared_is_empty_and_begins_anew() -> None:
    over = index()
    over.stored("a", None, CHAIN)
    ended(over)
    over.assumed(("y",), 10)
    over.cleared()
    assert over.hashes() == frozenset()
    over.stored("a", 8, [9])
    assert over.hashes() == frozenset()
    over.stored("b", None, CHAIN)
    ended(over, "b")
    assert len(over.hashes()) == 4


def test_memory_is_bounded_whatever_is_told() -> None:
    over = index(kv_tokens=20 * BLOCK)
    for n in range(prefix_index.SESSIONS_KEPT + 100):
        over.stored(f"s{n}", None, [10 * n, 10 * n + 1])
        over.prompt(f"s{n}", (f"p{n}",), 4_096, 1_024)
    assert len(over._sessions) == prefix_index.SESSIONS_KEPT
    assert len(over._blocks) <= 40
    assert len(over._held) + len(over._standing) + len(over._children) <= 120


def test_the_number_of_hashes_is_bounded() -> None:
    over = index(kv_tokens=10 * PREFIXES_KEPT * BLOCK)
    for n in range(PREFIXES_KEPT + 10):
        over.stored(f"s{n}", None, [2 * n, 2 * n + 1])
        over.prompt(f"s{n}", (f"p{n}",), 1_024, 256)
    assert over.hashes() == {f"p{n}" for n in range(10, PREFIXES_KEPT + 10)}


def test_without_events_the_last_prompts_that_fit_are_assumed() -> None:
    over = index(kv_tokens=1_100)
    over.assumed(("a0", "a1"), 300)  # 256 tokens and 43, and one behind them
    over.assumed(("b0",), 300)
    told = over.hashes()
    assert told == {"a0", "a1", "b0"}
    over.assumed((), 400)
    over.assumed(("a0",), 400)  # a1 and what stood behind it are the oldest now
    assert over.hashes() == {"a0", "b0"}
    over.assumed(("c0", "c1", "c2", "c3", "c4"), 4_000)  # c4 alone stands for 512 tokens
    assert over.hashes() == {"c0", "c1", "c2", "c3"}
    unknown = PrefixIndex(0, 0)
    unknown.assumed(("a0",), 10)
    assert unknown.hashes() == frozenset()


@pytest.mark.parametrize(("chars", "tokens"), [(0, 10), (10, 0), (-1, 10)])
def test_a_prompt_without_a_size_claims_nothing(chars: int, tokens: int) -> None:
    over = index()
    over.stored("a", None, CHAIN)
    over.prompt("a", HASHES, chars, tokens)
    assert over.hashes() == frozenset()


def chain_of(text: int, blocks: int) -> list[int]:
    """Texts 2n and 2n + 1 share their first three blocks."""
    return [(1_000 * (text // 2 + 1) if block < 3 else 1_000_000 * (text + 1)) + block for block in range(blocks)]


def prefix_of(text: int, blocks: int) -> tuple[str, ...]:
    """A hash where the producer has one; it names all blocks up to there."""
    ends = (chars // CHARS for chars in PREFIX_CHARS if chars <= blocks * CHARS)
    return tuple(",".join(map(str, chain_of(text, end))) for end in ends)


steps = st.lists(
    st.tuples(
        st.sampled_from(["run", "run", "run", "remove", "remove", "clear", "abort", "late"]),
        st.integers(0, 5),
        st.integers(1, 8),
    ),
    max_size=60,
)


@given(steps)
def test_it_never_claims_a_hash_whose_blocks_are_gone(actions: list[tuple[str, int, int]]) -> None:
    over, copies = index(), Counter[int]()
    for number, (action, text, blocks) in enumerate(actions):
        session, chain, prefix = f"{number}", chain_of(text, blocks), prefix_of(text, blocks)
        hit = next((n for n in range(blocks, 0, -1) if all(copies[block] for block in chain[:n])), 0)
        match action:
            case "remove":
                over.removed(chain[-1:])
                copies[chain[-1]] = max(0, copies[chain[-1]] - 1)
            case "clear":
                over.cleared()
                copies.clear()
            case _:
                if action == "late":
                    over.prompt(session, prefix, blocks * CHARS, blocks * BLOCK)
                over.stored(session, chain[hit - 1] if hit else None, chain[hit:])
                copies.update(chain[hit:])
                if action == "run":
                    over.prompt(session, prefix, blocks * CHARS, blocks * BLOCK)
        for held in over.hashes():
            assert all(copies[int(block)] for block in held.split(","))
        assert over._blocks.keys() <= (+copies).keys()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 8)), min_size=1, max_size=30))
def test_it_claims_all_that_a_cache_with_room_holds(prompts: list[tuple[int, int]]) -> None:
    over, known, held = index(), set[str](), set[int]()
    for number, (text, blocks) in enumerate(prompts):
        prefix, chain = prefix_of(text, blocks), chain_of(text, blocks)
        hit = next((n for n in range(blocks, 0, -1) if chain[n - 1] in held), 0)
        held |= set(chain)
        over.stored(f"{number}", chain[hit - 1] if hit else None, chain[hit:])
        over.prompt(f"{number}", prefix, blocks * CHARS, blocks * BLOCK)
        known |= set(prefix)
        assert over.hashes() == known
