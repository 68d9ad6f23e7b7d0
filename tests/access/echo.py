"""An OpenAI-compatible server that repeats the prompt, in answers as well as in all that goes wrong."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from protocol.wire import dumps, loads
from tests.support.servers import free_port

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def _event(chunk: object) -> bytes:
    return b"data: " + dumps(chunk) + b"\n\n"


def _said(text: str) -> bytes:
    return _event({"id": "x", "choices": [{"index": 0, "delta": {"content": text}}]})


async def _models(_: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "echo", "max_model_len": 4096}]})


async def _health(_: web.Request) -> web.Response:
    return web.Response()


async def _chat(request: web.Request) -> web.StreamResponse:
    text: str = loads(await request.read())["messages"][0]["content"]
    refusal = {"error": {"message": f"can't: {text}", "type": text, "code": 400}}
    match text.split(maxsplit=1)[0]:
        case "refuse":
            return web.json_response(refusal, status=400)
        case "fail":
            return web.json_response(refusal, status=500, reason="went wrong")
        case "busy":
            return web.json_response(refusal, status=429, headers={"Retry-After": text})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(_said(text))
    match text.split(maxsplit=1)[0]:
        case "hang":
            await asyncio.Event().wait()
        case "break":
            assert request.transport
            request.transport.abort()
        case "garbage":
            await response.write(f"data: {text}\n\n".encode())
        case "error":
            await response.write(_event(refusal))
        case _:
            await response.write(_event({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
            await response.write(_event({"id": "x", "choices": [], "usage": USAGE}) + b"data: [DONE]\n\n")
    return response


@asynccontextmanager
async def echoing() -> AsyncIterator[str]:
    """Its URL."""
    app, port = web.Application(), free_port()
    app.router.add_get("/health", _health)
    app.router.add_get("/v1/models", _models)
    app.router.add_post("/v1/chat/completions", _chat)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()
