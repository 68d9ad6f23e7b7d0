"""Prometheus's text as vLLM sends it."""

from worker.engine.vllm.metrics import Reading, caches, read

TEXT = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1.2e+06
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.7959831547904053e+09
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 128.0
vllm:num_preemptions_total{engine="0",model_name="m"} 3.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1531.0
vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_compute"} 7.0
vllm:generation_tokens_total{engine="0",model_name="m"} 50.0
vllm:cache_config_info{block_size="128",enable_prefix_caching="True",engine="0",note="\\"}",num_gpu_blocks="364"} 1.0
"""


def test_one_engine() -> None:
    assert read(TEXT) == Reading(2, 1, 0.25, 1531, 50, 1_200_000, 128, 3)


def test_several_engines_are_summed_and_the_share_is_of_all() -> None:
    other = TEXT.replace(b'engine="0"', b'engine="1"').replace(b"} 0.25", b"} 0.75")
    assert read(TEXT + other) == Reading(4, 2, 0.5, 3062, 100, 2_400_000, 256, 6)


def test_text_without_the_figures_is_no_reading() -> None:
    assert read(b"") is None
    assert read(b"<html>") is None
    assert read(b"# TYPE vllm:kv_cache_usage_perc gauge\n") is None


def test_how_each_cache_was_set_up() -> None:
    (labels,) = caches(TEXT)
    assert (labels["block_size"], labels["num_gpu_blocks"], labels["engine"]) == ("128", "364", "0")
    assert len(list(caches(TEXT + TEXT))) == 2
    assert list(caches(b"")) == []
