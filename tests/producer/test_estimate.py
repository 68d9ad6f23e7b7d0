"""Estimates of a checked body."""

from typing import Any

import pytest

from producer.estimate import DEFAULT_OUTPUT_TOKENS, estimate, prefix_hashes
from producer.prepare import Defaults, prepare
from producer.requests import JobRequest
from protocol.errors import InvalidRequest
from protocol.messages import ModelRecord
from protocol.prefix import PREFIX_CHARS

DEFAULTS = Defaults("t", deadline_s=60, keep_s=60, max_body_bytes=1_000_000)


def chat(*contents: Any, **changes: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content} for content in contents], **changes}


def test_texts_count_by_bytes_and_messages_by_number() -> None:
    assert estimate("/v1/chat/completions", chat("x" * 396), "t").prompt_tokens == 4 + 100  # with the role's 4 bytes
    assert estimate("/v1/chat/completions", chat("ж" * 198), "t").prompt_tokens == 4 + 100
    parts = [{"type": "text", "text": "x" * 396}, {"type": "image_url", "image_url": {"url": "data:" + "x" * 9_999}}]
    assert estimate("/v1/chat/completions", chat(parts), "t").prompt_tokens == 4 + 512 + 100
    with_tools = estimate("/v1/chat/completions", chat("x", tools=[{"name": "x" * 400}]), "t")
    assert with_tools.prompt_tokens > 100


@pytest.mark.parametrize(
    ("prompt", "tokens"), [("x" * 40, 10), (["x" * 40] * 3, 30), ([5] * 7, 7), ([[5] * 7] * 2, 14)]
)
def test_prompts_of_each_kind(prompt: Any, tokens: int) -> None:
    assert estimate("/v1/completions", {"model": "m", "prompt": prompt}, "t").prompt_tokens == tokens


def test_output_is_the_limit_for_each_answer_else_a_guess() -> None:
    assert estimate("/v1/chat/completions", chat("x"), "t").output_tokens == DEFAULT_OUTPUT_TOKENS
    assert estimate("/v1/chat/completions", chat("x", max_tokens=7, n=3), "t").output_tokens == 21
    assert estimate("/v1/chat/completions", chat("x", max_completion_tokens=9), "t").output_tokens == 9
    assert estimate("/v1/embeddings", {"model": "m", "input": "x"}, "t").output_tokens == 0


def test_a_shared_beginning_has_shared_hashes() -> None:
    system, one, two = "s" * PREFIX_CHARS[2], "1" * 3 * PREFIX_CHARS[0], "2" * 3 * PREFIX_CHARS[0]
    first, second = prefix_hashes("t", "m", [system, one]), prefix_hashes("t", "m", [system, two])
    assert len(first) == len(second) == 5
    assert first[:3] == second[:3]
    assert not set(first[3:]) & set(second[3:])
    assert not set(prefix_hashes("t", "other", [system])) & set(first)
    assert not set(prefix_hashes("u", "m", [system])) & set(first)
    assert prefix_hashes("t", "m", ["x" * (PREFIX_CHARS[0] - 1)]) == ()


@pytest.mark.parametrize("count", [1, 4, 5, 17, 18])
def test_a_hash_stands_at_each_of_the_places_that_a_prompt_reaches(count: int) -> None:
    text, reached = "".join(map(chr, range(32, 0xD000))) * 20, PREFIX_CHARS[count - 1]
    hashes = prefix_hashes("t", "m", [text[:100], text[100:reached]])
    assert len(set(hashes)) == count
    assert prefix_hashes("t", "m", [text[: reached - 1]]) == hashes[:-1]
    assert prefix_hashes("t", "m", [text])[:count] == hashes
    changed = prefix_hashes("t", "m", ["!" + text[1:reached]])
    assert not set(changed) & set(hashes)


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        ({"prompt": [1] * 90, "max_tokens": 10}, True),
        ({"prompt": [1] * 90, "max_tokens": 11}, False),
        ({"prompt": [[1] * 90, [1] * 80], "max_tokens": 10}, True),
        ({"prompt": "x" * 400}, True),
        ({"prompt": "x" * 808}, False),
        ({"prompt": "x", "max_tokens": 101}, False),
    ],
)
def test_only_what_can_not_fit_the_context_is_refused(body: dict[str, Any], fits: bool) -> None:
    request = JobRequest(model="m", body=body)
    prepare(request, ModelRecord(pool="p"), DEFAULTS, "id", "nonce")
    if fits:
        prepare(request, ModelRecord(pool="p", context_tokens=100), DEFAULTS, "id", "nonce")
        return
    with pytest.raises(InvalidRequest, match="the model takes 100"):
        prepare(request, ModelRecord(pool="p", context_tokens=100), DEFAULTS, "id", "nonce")


@pytest.mark.parametrize(("request_tenant", "same"), [("", True), ("t", True), ("u", False)])
def test_equal_prompts_of_two_tenants_share_nothing(request_tenant: str, same: bool) -> None:
    body = chat("x" * PREFIX_CHARS[1])
    mine = prepare(JobRequest(body=body), ModelRecord(pool="p"), DEFAULTS, "a", "n").spec.prefix
    other = prepare(JobRequest(body=body, tenant=request_tenant), ModelRecord(pool="p"), DEFAULTS, "b", "n").spec.prefix
    assert len(mine) == len(other) == 2
    assert bool(set(mine) & set(other)) is same


def test_jobs_spread_over_their_pools_shards_and_keep_theirs() -> None:
    record, request = ModelRecord(pool="p", shards=4), JobRequest(model="m", prompt="x")
    shards = {name: prepare(request, record, DEFAULTS, name, "n").handle.shard.number for name in map(str, range(200))}
    again = {name: prepare(request, record, DEFAULTS, name, "n").handle.shard.number for name in shards}
    assert shards == again
    assert set(shards.values()) == {0, 1, 2, 3}
