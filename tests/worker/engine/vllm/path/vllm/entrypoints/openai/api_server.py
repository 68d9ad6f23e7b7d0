"""Stands in for vLLM's own module of this name: starts as told by its flags, then serves as `stand_in` does."""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from aiohttp import web

from protocol.wire import loads
from tests.support.waiting import eventually
from tests.worker.engine.vllm.stand_in import CRASH, HELLO, StandIn, default_config, said, streams


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """`--say` lines, then `--end` with a code or `--hang`; or serve."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("--host", "--uds", "--served-model-name", "--kv-events-config"):
        parser.add_argument(name)
    parser.add_argument("--taken-once", type=Path)
    parser.add_argument("--say", action="append", default=[])
    parser.add_argument("--end", type=int)
    parser.add_argument("--hang", action="store_true")
    # What else the worker adds is not looked at; `--wrong` is refused, as vLLM refuses what it does not know.
    options, others = parser.parse_known_args()
    if "--wrong" in others:
        parser.error("unrecognized arguments: --wrong")
    if options.taken_once and not options.taken_once.exists():
        options.taken_once.touch()
        say("OSError: [Errno 98] Address already in use")
        return 1
    for line in options.say:
        say(line)
    if options.end is not None:
        return int(options.end)
    # As vLLM's engine: a process of its own that does not end by itself.
    subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    if options.hang:
        signal.pause()
    asyncio.run(serve(options))
    return 0


async def serve(options: argparse.Namespace) -> None:
    """Serve until killed, or until a request has it crash."""
    events = loads(options.kv_events_config)["endpoint"] if options.kv_events_config else ""
    server = StandIn(config=default_config(events), models=(options.served_model_name,), key=os.environ["VLLM_API_KEY"])

    async def play(request: web.Request) -> web.StreamResponse:
        content = server.bodies[-1]["messages"][0]["content"]
        if content.startswith("say "):
            say(content.removeprefix("say "))
        if content.startswith("wait "):
            await eventually(Path(content.removeprefix("wait ")).exists, 60)
        if content != "crash":
            return await HELLO(request)
        asyncio.get_running_loop().call_later(0.05, os._exit, 0)
        return await streams(said("a"), CRASH)(request)

    server.play = play
    runner = web.AppRunner(server.app())
    await runner.setup()
    await web.UnixSite(runner, options.uds).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
