"""Names: what a handle looks like, and what may not stand in it."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import keys
from protocol.errors import InvalidId
from protocol.handle import Handle, Shard, check_name, check_own_id

names = st.from_regex(r"[a-z0-9_-]{1,64}", fullmatch=True)
own_ids = st.from_regex(r"[A-Za-z0-9_.@=+~,-]{1,64}", fullmatch=True).filter(lambda text: text.strip("."))
handles = st.builds(Handle, st.builds(Shard, names, st.integers(0, 999)), names, own_ids)


@given(handles)
def test_a_handle_is_read_as_it_was_written(handle: Handle) -> None:
    assert Handle.parse(str(handle)) == handle
    assert Handle.of(handle.shard, handle.ref) == handle


@given(handles, handles)
def test_two_jobs_never_share_a_key(one: Handle, other: Handle) -> None:
    assert (keys.job(one) == keys.job(other)) == (one == other)


@given(handles)
def test_all_keys_of_a_job_carry_its_shard_as_the_hash_tag(handle: Handle) -> None:
    for name in (keys.job, keys.body, keys.result, keys.tokens):
        key = name(handle)
        assert key[key.index("{") + 1 : key.index("}")] == str(handle.shard)


@pytest.mark.parametrize("text", ["", "pool.0.t", "pool.x.t.a", "Pool.0.t.a", "pool.0.T.a", "po{l.0.t.a", ".0.t.a"])
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(InvalidId):
        Handle.parse(text)


@pytest.mark.parametrize("number", ["00", "01", "-1", "\N{ARABIC-INDIC DIGIT THREE}", "9" * 5000])
def test_a_shards_number_has_one_spelling(number: str) -> None:
    with pytest.raises(InvalidId):
        Handle.parse(f"pool.{number}.t.a")
    with pytest.raises(InvalidId):
        Shard.parse(f"pool.{number}")


@pytest.mark.parametrize("name", [5, None, b"name"])
def test_a_name_is_a_text(name: Any) -> None:
    for check in (partial(check_name, "tenant"), check_own_id):
        with pytest.raises(InvalidId):
            check(name)


def test_a_shard_may_be_named_by_its_pool() -> None:
    assert Shard.parse("pool") == Shard("pool", 0)
    assert Shard.parse("pool.3") == Shard("pool", 3)


@pytest.mark.parametrize("text", ["", "pool.x", "pool.-1", "pool.1.2", "POOL", "a:b"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(InvalidId):
        Shard.parse(text)


def test_the_error_says_what_is_allowed() -> None:
    with pytest.raises(InvalidId, match="invalid tenant: use 1 to 64 of a-z"):
        check_name("tenant", "Ä")
