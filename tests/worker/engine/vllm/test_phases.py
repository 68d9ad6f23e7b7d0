"""vLLM's own lines, as it wrote them."""

import pytest

from worker.engine.vllm.phases import Cause, failure_of, phase_of

HEAD = "(EngineCore pid=23805) INFO 11-29 20:01:09 [core.py:402] "
BAD = "(EngineCore pid=23805) ERROR 11-29 20:01:09 [core.py:402] "


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("Fetching 12 files:   8%|8         | 1/12 [00:01<00:11]", "downloading"),
        ("model-00001-of-00004.safetensors:  31%|███ | 1.5G/4.9G", "downloading"),
        (f"{HEAD}Starting to load model models/smollm2...", "loading weights"),
        ("Loading safetensors checkpoint shards:   0% Completed | 0/1 [00:00<?, ?it/s]", "loading weights"),
        (f"{HEAD}Dynamo bytecode transform time: 4.21 s", "compiling"),
        (f"{HEAD}Available KV cache memory: 62.41 GiB", "profiling memory"),
        (f"{HEAD}CPU KV cache size: 46,592 tokens, Maximum concurrency", "profiling memory"),
        ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  10%|█", "capturing graphs"),
        (f"{HEAD}init engine (profile, create kv cache, warmup model) took 2.82 s", "warming up"),
        (f"{HEAD}Starting vLLM server on http://127.0.0.1:8123", "starting the server"),
        (f"{HEAD}Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT kernel warmup.", ""),
        (f"{HEAD}Received request r1: prompt: 'secret'", ""),
    ],
)
def test_phases(line: str, phase: str) -> None:
    assert phase_of(line) == phase


@pytest.mark.parametrize(
    ("code", "line", "cause"),
    [
        (1, "OSError: [Errno 98] Address already in use", Cause.PORT),
        (2, "api_server.py: error: unrecognized arguments: --no-such-flag", Cause.FLAG),
        (1, "  Value error, User-specified max_model_len (9) is greater than the derived max_model_len", Cause.FLAG),
        (1, "/usr/bin/python: Error while finding module (ModuleNotFoundError: No module named 'vllm')", Cause.MISSING),
        (1, "/usr/bin/python: No module named vllm", Cause.MISSING),
        (1, "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error. Repository Not Found", Cause.MODEL),
        (1, "OSError: nope is not a local folder and is not a valid model identifier", Cause.MODEL),
        (1, f"{BAD}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", Cause.MEMORY),
        (1, f"{BAD}ValueError: No available memory for the cache blocks. Try increasing", Cause.MEMORY),
        (1, f"{BAD}ValueError: Free memory on device cuda:0 (3/80 GiB) on startup is less", Cause.MEMORY),
        (1, f"{BAD}RuntimeError: Available memory on node 0 is less than requested memory for kv", Cause.MEMORY),
        (137, "Loading safetensors checkpoint shards:   0% Completed", Cause.MEMORY),
        (1, f"{BAD}RuntimeError: something new", Cause.UNKNOWN),
        (0, "", Cause.UNKNOWN),
    ],
)
def test_causes(code: int, line: str, cause: Cause) -> None:
    failure = failure_of(code, ["first", line, *["INFO 11-29 20:01:09 [a.py:1] more"] * 3])
    assert failure.cause is cause
    assert failure.hint
    assert "vLLM " in failure.message


def test_the_message_shows_the_telling_lines_without_heads_traces_and_repeats() -> None:
    lines = [
        f"{BAD}torch.OutOfMemoryError: CUDA out of memory.",
        f"{HEAD}an Error in an info line",
        *[f"{BAD}ValueError: {number}" for number in range(9)],
        "    raise ValueError(",
        f"{BAD}RuntimeError: Engine core initialization failed. See root cause above.",
        f"{BAD}ValueError: 8",
    ]
    message = failure_of(1, lines).message
    told = "torch.OutOfMemoryError: CUDA out of memory. / ValueError: 6 / ValueError: 7 / ValueError: 8"
    assert message == f"vLLM ended with code 1 / {told}"


def test_signals_are_named() -> None:
    assert "signal 9" in failure_of(137, []).message
    assert "memory" in failure_of(137, []).message
    assert "signal 11" in failure_of(139, []).message
