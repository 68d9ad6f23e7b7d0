"""The command line that vLLM is started with."""

import pytest

from protocol.errors import SetupError
from protocol.wire import loads
from worker.engine.options import EngineOptions
from worker.engine.vllm.flags import STREAM_INTERVAL, command, environment, stream_interval


def flags(*arguments: str, events: str = "ipc:///run/kv", **options: int) -> list[str]:
    return command(EngineOptions(model="m", arguments=arguments, **options), "python", "sock", events)  # type: ignore[arg-type] # only counts


def value(parts: list[str], name: str) -> str:
    return parts[parts.index(name) + 1]


def test_our_defaults() -> None:
    parts = flags()
    assert parts[:3] == ["python", "-m", "vllm.entrypoints.openai.api_server"]
    assert (value(parts, "--host"), value(parts, "--uds")) == ("127.0.0.1", "sock")
    assert (value(parts, "--model"), value(parts, "--served-model-name")) == ("m", "m")
    assert value(parts, "--scheduling-policy") == "priority"
    assert {"--enable-prompt-tokens-details", "--disable-uvicorn-access-log"} < set(parts)
    assert loads(value(parts, "--kv-events-config"))["endpoint"] == "ipc:///run/kv"
    assert not {"--max-num-seqs", "--max-model-len", "--stream-interval"} & set(parts)


def test_requests_ask_for_larger_chunks_unless_the_server_is_set_otherwise() -> None:
    assert stream_interval(EngineOptions(model="m")) == STREAM_INTERVAL
    assert stream_interval(EngineOptions(model="m", arguments=("--stream_interval=1",))) == 0
    assert stream_interval(EngineOptions(model="m", attach="http://gpu-1:8000")) == 0


def test_slots_and_context_are_given_only_when_they_are_set() -> None:
    parts = flags(slots=8, context_tokens=4096)
    assert (value(parts, "--max-num-seqs"), value(parts, "--max-model-len")) == ("8", "4096")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--stream-interval", "1"),
        ("--stream_interval=1",),
        ("--scheduling-policy=fcfs",),
        ("--kv-events-config.enable_kv_cache_events", "false"),
        ("--model", "/models/m"),
        ("--served-model-name", "m", "other"),
        ("--no-enable-prompt-tokens-details",),
    ],
)
def test_the_users_flags_take_the_place_of_ours(arguments: tuple[str, ...]) -> None:
    parts = flags(*arguments)
    name = arguments[0].partition("=")[0].replace("_", "-").replace("--no-", "--").partition(".")[0]
    ours = parts[: len(parts) - len(arguments)]
    assert parts[len(ours) :] == list(arguments)
    assert name not in ours


def test_weights_from_elsewhere_are_served_under_the_workers_name() -> None:
    parts = flags("--model", "/models/m")
    assert value(parts, "--served-model-name") == "m"


@pytest.mark.parametrize(
    "arguments",
    [("--no-enable-prefix-caching",), ("--data-parallel-size", "2"), ("-dp", "2"), ("--data_parallel_size=4",)],
)
def test_no_events_are_asked_for_where_vllm_has_none(arguments: tuple[str, ...]) -> None:
    assert "--kv-events-config" not in flags(*arguments)
    assert "--kv-events-config" in flags("--data-parallel-size", "1", "-tp", "2")


@pytest.mark.parametrize("flag", ["--host", "--port=1", "--por", "--api-key", "--api_key=x", "--uds", "--ssl-keyfile"])
def test_flags_that_are_ours_are_refused_with_the_reason(flag: str) -> None:
    with pytest.raises(SetupError, match="worker") as caught:
        flags(flag)
    assert "Leave" in caught.value.hint


def test_metrics_can_not_be_turned_off() -> None:
    with pytest.raises(SetupError, match="metrics"):
        flags("--disable-log-stats")


def test_negative_numbers_are_values() -> None:
    assert flags("--max-logprobs", "-1")[-2:] == ["--max-logprobs", "-1"]


def test_a_name_that_the_worker_does_not_offer_is_refused() -> None:
    with pytest.raises(SetupError, match="would serve x, y") as caught:
        flags("--served-model-name", "x", "y")
    assert "--model x" in caught.value.hint


@pytest.mark.parametrize("given", [("--hf-token", "hush"), ("--hf_token=hush",), ("--hf-tok", "hush")])
def test_an_access_token_on_the_command_line_is_refused(given: tuple[str, ...]) -> None:
    with pytest.raises(SetupError, match="HF_TOKEN") as caught:
        flags(*given)
    assert "hush" not in str(caught.value)


def test_the_environment_is_the_workers_with_ours_over_it() -> None:
    made = environment({"A": "1", "VLLM_API_KEY": "old", "VLLM_NO_USAGE_STATS": "0"}, "new")
    assert (made["A"], made["VLLM_API_KEY"], made["VLLM_NO_USAGE_STATS"]) == ("1", "new", "0")
    assert made["VLLM_SERVER_DEV_MODE"] == "1"
    assert made["VLLM_MEDIA_URL_ALLOW_REDIRECTS"] == "0"
