"""The simulated engine behind OpenAI's HTTP, as a process: asked straight, and through gateways.

It notes how long the engine itself took to each request's first token, so that a client can tell what all else took.
"""

import argparse
import asyncio
import time
from itertools import count

import uvloop
from aiohttp import web

from bench.gateway.client import limit_files
from protocol.messages import Endpoint
from protocol.states import Priority
from protocol.wire import JsonObject, dumps, loads
from worker.engine.base import EngineRequest
from worker.engine.sim.engine import SimEngine

ENDPOINT: Endpoint = "/v1/chat/completions"
SLOTS = 2048


class Front:
    """The server's handlers."""

    def __init__(self, engine: SimEngine, *, hush: bool) -> None:
        """With `hush`, each stream says nothing more after its first token."""
        self._engine, self._hush = engine, hush
        self._numbers = count()
        self._took_s: dict[str, float] = {}
        """By what the request said."""

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Stream one answer."""
        came_s = time.perf_counter()
        body: JsonObject = loads(await request.read())
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        asked = EngineRequest(f"r{next(self._numbers)}", ENDPOINT, body, Priority.HIGH, 0)
        async for chunk in self._engine.generate(asked):
            if not response.prepared:
                self._took_s[body["messages"][0]["content"]] = time.perf_counter() - came_s
                await response.prepare(request)
            await response.write(b"data: %b\n\n" % dumps(chunk))
            if self._hush and chunk["choices"][0]["delta"].get("content"):
                await asyncio.Event().wait()
        await response.write(b"data: [DONE]\n\n")
        return response

    async def took(self, request: web.Request) -> web.Response:
        """What was noted since the last time, in seconds."""
        del request
        noted, self._took_s = self._took_s, {}
        return _json(noted)

    async def models(self, request: web.Request) -> web.Response:
        """The name of any model."""
        del request
        return _json({"object": "list", "data": [{"id": "bench", "object": "model", "max_model_len": 32_768}]})

    async def health(self, request: web.Request) -> web.Response:
        """It lives."""
        del request
        return web.Response()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--hush", action="store_true")
    options = parser.parse_args()
    limit_files()
    uvloop.run(_serve(options.port, SimEngine(speed=options.speed, slots=SLOTS), hush=options.hush))


async def _serve(port: int, engine: SimEngine, *, hush: bool) -> None:
    await engine.start()
    front = Front(engine, hush=hush)
    app = web.Application()
    app.add_routes([web.post(ENDPOINT, front.chat), web.get("/took", front.took)])
    app.add_routes([web.get("/v1/models", front.models), web.get("/health", front.health)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=2048).start()
    await asyncio.Event().wait()


def _json(value: object) -> web.Response:
    return web.Response(body=dumps(value), content_type="application/json")


if __name__ == "__main__":
    main()
