"""The few lines of vLLM's metrics that tell its load, in Prometheus's text format. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_NAMES = (
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "prompt_tokens_total",
    "generation_tokens_total",
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "num_preemptions_total",
)
PATH = "/metrics/?" + "&".join(f"name[]=vllm:{name}" for name in _NAMES)
"""Asks for these alone: all of them are 50 KB and cost the server five times as long. One that knows no such filter
sends all, which is read as well."""
ALL_PATH = "/metrics"

_SAMPLE = re.compile(rb"^vllm:(" + "|".join(_NAMES).encode() + rb")(?:\{[^}\n]*\})? ([0-9.eE+-]+)", re.MULTILINE)
_CACHE = re.compile(rb"^vllm:cache_config_info\{([^\n]*)\} ", re.MULTILINE)
_LABEL = re.compile(rb'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Reading:
    """What the engines behind one server do, together; tokens and requests."""

    running: int = 0
    waiting: int = 0
    kv_share: float = 0.0
    """Of the whole KV cache, between 0 and 1."""
    prompt_tokens: int = 0
    generated_tokens: int = 0
    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    preemptions: int = 0


def read(text: bytes) -> Reading | None:
    """The figures, summed over the engines of data parallelism; None when the text holds none."""
    sums = dict.fromkeys(_NAMES, 0.0)
    engines = 0
    for name, value in _SAMPLE.findall(text):
        key = name.decode()
        sums[key] += float(value)
        engines += key == "kv_cache_usage_perc"
    if not engines:
        return None
    running, waiting, share, *counters = sums.values()
    return Reading(int(running), int(waiting), share / engines, *map(int, counters))


def caches(text: bytes) -> Iterator[Mapping[str, str]]:
    """The labels of each engine's `cache_config_info`: how its KV cache was set up."""
    for labels in _CACHE.findall(text):
        yield {name.decode(): value.decode() for name, value in _LABEL.findall(labels)}
