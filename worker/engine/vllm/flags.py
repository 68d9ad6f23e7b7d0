"""The command line of vLLM's server: our defaults, then the user's flags, which win. Pure."""

from collections.abc import Mapping, Sequence

from protocol.errors import SetupError
from protocol.wire import dumps
from worker.engine.options import EngineOptions

HOST = "127.0.0.1"
MODULE = "vllm.entrypoints.openai.api_server"
"""As a module: the `vllm` command of some builds fails for want of its package's metadata."""
STREAM_INTERVAL = 4
"""Tokens of one chunk. vLLM sends a request's first token alone and at once whatever this says, and what is left with
its end; between them it gathers so many. Each chunk costs its server an object, a JSON text and a write, and this
worker as much: with a tiny model and 16 streams on a CPU, 4 gave 1,250 tokens/s where 1 gave 1,050, for 0.4 of the
worker's CPU. More gain little, make the stream jerk, and are lost when the engine dies. Each request asks for it: the
server's flag kills one that makes vectors, which has no tokens to gather, at its first request (seen with 0.32)."""

_TAKEN: Mapping[str, str] = {
    "--host": "the worker talks to its own vLLM over a private socket",
    "--port": "the worker talks to its own vLLM over a private socket",
    "--uds": "the worker makes a private socket of its own for each start",
    "--api-key": "the worker makes a key of its own for each start",
    "--root-path": "the worker talks to its own vLLM directly, without a proxy",
    "--ssl-keyfile": "the worker talks to its own vLLM without TLS, over a private socket",
    "--ssl-certfile": "the worker talks to its own vLLM without TLS, over a private socket",
    "--hf-token": "everyone on this host sees a command line; the variable HF_TOKEN is read instead",
    "--headless": "the worker needs the server of its vLLM",
    "--disable-log-stats": "the worker's load reports come from vLLM's metrics, which that flag turns off",
}
_PARALLEL = ("--data-parallel-size", "-dp")


def command(options: EngineOptions, python: str, socket: str, events: str) -> list[str]:
    """What to run.

    Args:
        options: the worker's settings.
        python: the interpreter that has vLLM.
        socket: where it is to listen: nobody but its user can reach what takes no key, as sleep and its like.
        events: the ZMQ endpoint for its KV events; empty for none.

    Raises:
        SetupError: the user's flags hold one that is ours, or name the model otherwise than the worker does.
    """
    given = _given(options.arguments)
    _check(given, options.model)
    ours: dict[str, Sequence[str]] = {
        "--model": [options.model],
        "--served-model-name": [options.model],
        "--scheduling-policy": ["priority"],
        "--enable-prompt-tokens-details": [],
        # The worker asks for health and metrics all the time: nobody reads a line for each.
        "--disable-uvicorn-access-log": [],
    }
    if options.slots:
        ours["--max-num-seqs"] = [str(options.slots)]
    if options.context_tokens:
        ours["--max-model-len"] = [str(options.context_tokens)]
    if events and _can_tell_events(given):
        settings = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": events}
        ours["--kv-events-config"] = [dumps(settings).decode()]
    flags = [part for name, values in ours.items() if name not in given for part in (name, *values)]
    return [python, "-m", MODULE, "--host", HOST, "--uds", socket, *flags, *options.arguments]


def stream_interval(options: EngineOptions) -> int:
    """What requests ask for; 0 where the server's own setting holds: it is not ours, or the user gave the flag."""
    return 0 if options.attach or "--stream-interval" in _given(options.arguments) else STREAM_INTERVAL


def _given(arguments: Sequence[str]) -> dict[str, list[str]]:
    """The user's flags as vLLM reads them: `--a_b=c`, `--a-b c` and `--a-b.c d` all name `--a-b`."""
    given: dict[str, list[str]] = {}
    name = ""
    for argument in arguments:
        if argument.startswith("-") and not argument.lstrip("-")[:1].isdigit():
            flag, _, value = argument.partition("=")
            name = flag.partition(".")[0].replace("_", "-")
            given.setdefault(name, []).extend([value] if value else [])
        elif name:
            given[name].append(argument)
    # `--no-x` is x, given.
    return given | {f"--{name[5:]}": ["no"] for name in given if name.startswith("--no-")}


def _check(given: Mapping[str, Sequence[str]], model: str) -> None:
    for name in given:
        # vLLM's parser takes a flag's beginning for the flag.
        taken = next((flag for flag in _TAKEN if len(name) > 3 and flag.startswith(name)), None)
        if taken:
            raise SetupError(f"{name} can't be given to vLLM: {_TAKEN[taken]}", f"Leave {name} out.")
    served = given.get("--served-model-name")
    if served and model not in served:
        raise SetupError(
            f"vLLM would serve {', '.join(served)}, but the worker offers {model}",
            f"Give the worker --model {served[0]}, and vLLM its weights: -- --model {model}.",
        )


def _can_tell_events(given: Mapping[str, Sequence[str]]) -> bool:
    """There are none without a prefix cache, and vLLM takes no `ipc://` for several data-parallel engines."""
    parallel = any(value not in ("", "1") for flag in _PARALLEL for value in given.get(flag, ()))
    return "no" not in given.get("--enable-prefix-caching", ()) and not parallel


def environment(inherited: Mapping[str, str], api_key: str) -> dict[str, str]:
    """The child's environment: the worker's own, and what we need of vLLM."""
    return {
        # No `vllm` folder or module of the directory that the worker was started in is to run instead of vLLM.
        "PYTHONSAFEPATH": "1",
        "VLLM_NO_USAGE_STATS": "1",
        # We look at the address that a URL names; a redirect would lead to one that nobody has looked at.
        "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",
        **inherited,
        # Lines come as they are written, so that progress is seen when it is made.
        "PYTHONUNBUFFERED": "1",
        # So that nobody else on this host uses the engine.
        "VLLM_API_KEY": api_key,
        # For what the engine was set up with, sleep and wake.
        "VLLM_SERVER_DEV_MODE": "1",
    }
