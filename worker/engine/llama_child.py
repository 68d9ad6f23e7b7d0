"""A process of its own that runs llama.cpp's HTTP server, and never outlives its parent.

Usage: python -m worker.engine.llama_child MODEL_PATH MODEL_NAME PORT SLOTS CONTEXT_TOKENS THREADS
It prints its address once it listens, and ends when its standard input does.
"""

import ctypes
import os
import signal
import sys

import xllamacpp

_PR_SET_PDEATHSIG = 1
_PROMPT_CACHE_MIB = 128
_LOG_ERRORS_ONLY = 1


def die_with_parent() -> None:
    """Ask Linux to kill this process with its parent; elsewhere the end of standard input does it alone."""
    # Ctrl-C reaches the whole terminal: only the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def start_server(
    model_path: str, name: str, port: int, slots: int, context_tokens: int, threads: int
) -> xllamacpp.Server:
    """Start the server in threads of this process; it lives as long as what this returns. Port 0 takes a free one."""
    params = xllamacpp.CommonParams()
    params.model.path = model_path
    params.model_alias = {name}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = slots
    params.n_ctx = slots * context_tokens
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.verbosity = _LOG_ERRORS_ONLY
    params.ui = False
    return xllamacpp.Server(params)


def main() -> None:
    """Serve until standard input ends."""
    die_with_parent()
    model_path, name, *numbers = sys.argv[1:]
    port, slots, context_tokens, threads = map(int, numbers)
    server = start_server(model_path, name, port, slots, context_tokens, threads)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    while sys.stdin.buffer.read(4096):
        pass
    # Not sys.exit: the server's threads may be in the middle of a generation.
    os._exit(0)


if __name__ == "__main__":
    main()
