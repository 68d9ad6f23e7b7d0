"""What vLLM tells about itself, in the shapes that it does."""

from collections.abc import Mapping
from typing import Any

import pytest

from protocol.errors import SetupError
from protocol.wire import JsonObject
from worker.engine.base import Capacity
from worker.engine.options import EngineOptions
from worker.engine.vllm.facts import Facts, facts_of
from worker.engine.vllm.flags import STREAM_INTERVAL

MODELS: JsonObject = {
    "data": [{"id": "m", "max_model_len": 2048}, {"id": "adapter", "parent": "m", "max_model_len": 2048}]
}
CACHE = {"block_size": "128", "num_gpu_blocks": "364", "kv_cache_size_tokens": "46592", "enable_prefix_caching": "True"}
EVENTS = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": "ipc:///run/kv"}


def info(device: str = "cuda", **changes: Any) -> JsonObject:
    config: JsonObject = {
        "scheduler_config": {
            "max_num_seqs": 16,
            "policy": "priority",
            "max_num_batched_tokens": 2048,
            "stream_interval": 4,
        },
        "model_config": {"max_model_len": 2048, "enable_sleep_mode": True},
        "kv_events_config": EVENTS,
        "device_config": {"device": device},
    }
    return {"vllm_config": {**config, **changes}}


def told(
    info: JsonObject, *caches: Mapping[str, str], attach: str = "", slots: int = 0, models: JsonObject = MODELS
) -> Facts:
    return facts_of(EngineOptions(model="m", attach=attach, slots=slots), models, info, caches)


def test_all_is_read() -> None:
    wanted = Capacity(16, 2048, 46592, 128, ("m", "adapter"), step_tokens=2048, stream_tokens=4, continues_chats=True)
    assert told(info(), CACHE) == Facts(wanted, True, "", "ipc:///run/kv", True, 0, STREAM_INTERVAL)


def test_the_vocabulary_is_read_where_it_is_told() -> None:
    model = {"max_model_len": 2048, "hf_config": {"vocab_size": 49152}}
    assert told(info(model_config=model), CACHE).vocabulary == 49152


def test_older_servers_tell_blocks_instead_of_tokens() -> None:
    older = {name: value for name, value in CACHE.items() if name != "kv_cache_size_tokens"}
    assert told(info(), older).capacity.kv_tokens == 364 * 128


def test_data_parallel_engines_add_up_and_have_no_events() -> None:
    facts = told(info(), CACHE, CACHE)
    assert (facts.capacity.slots, facts.capacity.kv_tokens, facts.events) == (32, 2 * 46592, "")
    assert (facts.capacity.step_tokens, facts.capacity.stream_tokens) == (4096, 4)


def test_an_older_server_that_tells_neither_steps_nor_chunks() -> None:
    capacity = told(info(scheduler_config={"max_num_seqs": 16}), CACHE).capacity
    assert (capacity.step_tokens, capacity.stream_tokens) == (0, STREAM_INTERVAL)


def test_an_attached_server_that_gathers_nothing_sends_token_by_token() -> None:
    settings = {"max_num_seqs": 16, "stream_interval": 1}
    assert told(info(scheduler_config=settings), CACHE, attach="http://h:1").capacity.stream_tokens == 1


@pytest.mark.parametrize(("slots", "taken"), [(4, 4), (64, 16)])
def test_fewer_slots_can_be_asked_for_but_not_more(slots: int, taken: int) -> None:
    assert told(info(), CACHE, slots=slots).capacity.slots == taken


def test_without_development_mode_the_slots_must_be_given() -> None:
    with pytest.raises(SetupError, match="how many requests") as caught:
        told({}, CACHE)
    assert "--slots" in caught.value.hint
    facts = told({}, CACHE, slots=8)
    assert facts.capacity == Capacity(
        8, 2048, 46592, 128, ("m", "adapter"), stream_tokens=STREAM_INTERVAL, continues_chats=True
    )
    assert not facts.by_priority
    assert "VLLM_SERVER_DEV_MODE" in facts.sleepless


def test_a_model_that_is_not_served_is_named_with_those_that_are() -> None:
    with pytest.raises(SetupError, match="does not serve m") as caught:
        told(info(), CACHE, models={"data": [{"id": "a"}, {"id": "b"}, None]})
    assert "a, b" in caught.value.hint


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (info(device="cpu"), "CPU"),
        (info(model_config={"enable_sleep_mode": False}), "--enable-sleep-mode"),
        (info(device_config={"device_type": "cpu"}), "CPU"),
    ],
)
def test_why_it_can_not_sleep(answer: JsonObject, why: str) -> None:
    assert why in told(answer, CACHE).sleepless


@pytest.mark.parametrize(
    ("config", "attach", "endpoint"),
    [
        ({**EVENTS, "endpoint": "tcp://*:5557"}, "http://gpu-1:8000/v1", "tcp://gpu-1:5557"),
        ({**EVENTS, "endpoint": "tcp://*:5557"}, "", "tcp://127.0.0.1:5557"),
        ({**EVENTS, "enable_kv_cache_events": False}, "", ""),
        ({**EVENTS, "publisher": "null"}, "", ""),
        (None, "", ""),
    ],
)
def test_where_the_events_are(config: JsonObject | None, attach: str, endpoint: str) -> None:
    assert told(info(kv_events_config=config), CACHE, attach=attach).events == endpoint


def test_nonsense_is_nothing() -> None:
    facts = facts_of(
        EngineOptions(slots=1), {"data": "x"}, {"vllm_config": {"model_config": []}}, [{"block_size": "x"}]
    )
    assert facts.capacity == Capacity(1, stream_tokens=STREAM_INTERVAL, continues_chats=True)
    assert not facts.caches_prefixes
