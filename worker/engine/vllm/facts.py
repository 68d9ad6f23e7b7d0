"""What a running vLLM says about itself, read once after each start. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from protocol.errors import SetupError
from protocol.wire import JsonObject
from worker.engine.base import Capacity
from worker.engine.options import EngineOptions
from worker.engine.vllm.flags import stream_interval

INFO_PATH = "/server_info?config_format=json"
"""Only with VLLM_SERVER_DEV_MODE=1."""
_NO_DEV_MODE = "it runs without VLLM_SERVER_DEV_MODE=1, so it has no sleep routes"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the worker needs to know of an engine."""

    capacity: Capacity
    by_priority: bool = False
    """Whether it takes a request's priority; otherwise one that has any is refused."""
    sleepless: str = _NO_DEV_MODE
    """Why it can't sleep; empty when it can."""
    events: str = ""
    """The ZMQ endpoint of its KV events, as a subscriber names it; empty where there are none."""
    caches_prefixes: bool = False
    vocabulary: int = 0
    """Tokens that it knows; 0 when it does not tell."""
    stream_interval: int = 0
    """See `flags.stream_interval`."""


def facts_of(
    options: EngineOptions, models: JsonObject, info: JsonObject, caches: Sequence[Mapping[str, str]]
) -> Facts:
    """Put together what the server answered.

    Args:
        options: the worker's settings.
        models: the answer of `/v1/models`.
        info: the answer of `INFO_PATH`; empty without development mode.
        caches: the labels of `cache_config_info` in its metrics, one for each engine.

    Raises:
        SetupError: it does not serve the worker's model, or does not tell how many requests it takes.
    """
    config = _section(info, "vllm_config")
    scheduler, model = _section(config, "scheduler_config"), _section(config, "model_config")
    listed = models.get("data")
    records = [one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, dict) and one.get("id")]
    names = tuple(str(record["id"]) for record in records)
    if options.model and options.model not in names:
        raise SetupError(
            f"vLLM does not serve {options.model}",
            f"It serves: {', '.join(names) or 'nothing'}; give one with --model.",
        )
    served = next((record for record in records if record["id"] == options.model), records[0] if records else {})
    context_tokens = _count(served.get("max_model_len")) or _count(model.get("max_model_len"))
    engines, interval = max(1, len(caches)), stream_interval(options)
    capacity = Capacity(
        slots=_slots(options.slots, _count(scheduler.get("max_num_seqs")) * engines),
        context_tokens=context_tokens,
        kv_tokens=sum(map(_kv_tokens, caches)),
        block_tokens=_count(caches[0].get("block_size")) if caches else 0,
        models=names,
        step_tokens=_count(scheduler.get("max_num_batched_tokens")) * engines,
        # vLLM takes the larger one of the request's and its own.
        stream_tokens=max(1, interval, _count(scheduler.get("stream_interval"))),
        continues_chats=True,
    )
    return Facts(
        capacity,
        by_priority=scheduler.get("policy") == "priority",
        sleepless=_sleepless(config, model) if config else _NO_DEV_MODE,
        events=_events(_section(config, "kv_events_config"), options.attach, engines),
        caches_prefixes=any(cache.get("enable_prefix_caching") == "True" for cache in caches),
        vocabulary=_vocabulary(model),
        stream_interval=interval,
    )


def _slots(wanted: int, told: int) -> int:
    if not wanted and not told:
        raise SetupError(
            "this vLLM does not tell how many requests it takes at once",
            "Give its --max-num-seqs as --slots, or start it with VLLM_SERVER_DEV_MODE=1.",
        )
    return min(wanted or told, told or wanted)


def _kv_tokens(cache: Mapping[str, str]) -> int:
    return _count(cache.get("kv_cache_size_tokens")) or _count(cache.get("num_gpu_blocks")) * _count(
        cache.get("block_size")
    )


def _sleepless(config: JsonObject, model: JsonObject) -> str:
    device = str(
        _section(config, "device_config").get("device_type") or _section(config, "device_config").get("device")
    )
    if device == "cpu":
        return "it runs on the CPU, where vLLM has no sleep mode"
    if not model.get("enable_sleep_mode"):
        return "it was started without sleep mode: add -- --enable-sleep-mode to the worker's command"
    return ""


def _events(config: JsonObject, attach: str, engines: int) -> str:
    """Where to subscribe; a server on another host binds all addresses of its own."""
    endpoint = str(config.get("endpoint") or "")
    if not config.get("enable_kv_cache_events") or config.get("publisher") != "zmq" or engines > 1:
        return ""
    return endpoint.replace("*", urlsplit(attach).hostname or "127.0.0.1")


def _vocabulary(model: JsonObject) -> int:
    configs = (_section(model, "hf_text_config"), _section(model, "hf_config"))
    return next((size for config in configs if (size := _count(config.get("vocab_size")))), 0)


def _section(value: JsonObject, name: str) -> JsonObject:
    section = value.get(name)
    return section if isinstance(section, dict) else {}


def _count(value: Any) -> int:  # noqa: ANN401 - whatever the server sent
    """A number, or a label that holds one; 0 for anything else."""
    if isinstance(value, str):
        return int(value) if value.isdecimal() else 0
    return value if isinstance(value, int) and value > 0 else 0
