"""A server that speaks like vLLM's, over real HTTP, and fails as it does."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from protocol.wire import JsonObject, dumps, loads

Play = Callable[[web.Request], Awaitable[web.StreamResponse]]
USAGE = {"prompt_tokens": 32, "completion_tokens": 2, "total_tokens": 34}
MODEL = "m"
DONE = b"data: [DONE]\n\n"


def event(chunk: JsonObject) -> bytes:
    return b"data: " + dumps(chunk) + b"\n\n"


def said(content: str) -> bytes:
    return event({"id": "x", "choices": [{"index": 0, "delta": {"content": content}}]})


END = event({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
ANSWER = (said("Hel"), said("lo"), END, event({"id": "x", "choices": [], "usage": USAGE}), DONE)
# What a crash of its engine sends into each stream.
CRASH = event({"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "code": 500}})


def streams(*pieces: bytes, then: asyncio.Event | None = None) -> Play:
    """Sends the pieces, and if there is a `then`, waits for it before it ends."""

    async def play(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if then:
            await then.wait()
        return response

    return play


def default_config(events: str = "") -> JsonObject:
    """As `/server_info` tells it."""
    return {
        "scheduler_config": {"max_num_seqs": 4, "policy": "priority"},
        "model_config": {"max_model_len": 2048, "enable_sleep_mode": True},
        "kv_events_config": {"enable_kv_cache_events": bool(events), "publisher": "zmq", "endpoint": events},
        "device_config": {"device": "cuda"},
    }


HELLO = streams(*ANSWER)


@dataclass
class StandIn:
    """What it does is what the test sets; what it was asked stays."""

    play: Play = HELLO
    config: JsonObject | None = field(default_factory=default_config)
    """None: without development mode."""
    models: tuple[str, ...] = (MODEL, "adapter")
    health: int = 200
    order_status: int = 200
    """The answer to sleep and wake."""
    key: str = ""
    tokens: int = 0
    """The generation counter of its metrics."""
    metrics_come: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared: who asks for them waits."""
    bodies: list[JsonObject] = field(default_factory=list)
    tokenized: list[JsonObject] = field(default_factory=list)
    orders: list[str] = field(default_factory=list)
    arrivals: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def __post_init__(self) -> None:
        self.metrics_come.set()

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guarded])
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/server_info", self._info)
        app.router.add_get("/metrics{slash:/?}", self._metrics)
        for path in ("/sleep", "/wake_up"):
            app.router.add_post(path, self._order)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/detokenize", self._detokenize)
        for path in ("chat/completions", "completions", "embeddings"):
            app.router.add_post(f"/v1/{path}", self._post)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.key and request.path.startswith("/v1") and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=self.health)

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": name, "max_model_len": 2048} for name in self.models]})

    async def _info(self, _request: web.Request) -> web.Response:
        if self.config is None:
            return web.json_response({"detail": "Not Found"}, status=404)
        return web.json_response({"vllm_config": self.config})

    async def _metrics(self, _request: web.Request) -> web.Response:
        await self.metrics_come.wait()
        labels = 'engine="0",model_name="m"'
        return web.Response(
            text=f"vllm:num_requests_running{{{labels}}} 3.0\nvllm:num_requests_waiting{{{labels}}} 1.0\n"
            f"vllm:kv_cache_usage_perc{{{labels}}} 0.5\nvllm:prompt_tokens_total{{{labels}}} 70.0\n"
            f"vllm:generation_tokens_total{{{labels}}} {self.tokens}.0\nvllm:num_preemptions_total{{{labels}}} 2.0\n"
            f"vllm:prefix_cache_queries_total{{{labels}}} 70.0\nvllm:prefix_cache_hits_total{{{labels}}} 16.0\n"
            'vllm:cache_config_info{block_size="16",enable_prefix_caching="True",kv_cache_size_tokens="1600"} 1.0\n'
        )

    async def _order(self, request: web.Request) -> web.Response:
        self.orders.append(str(request.rel_url))
        return web.Response(status=self.order_status)

    async def _tokenize(self, request: web.Request) -> web.Response:
        """A token a character, after two that a template adds."""
        asked = loads(await request.read())
        self.tokenized.append(asked)
        texts = [message["content"] for message in asked.get("messages", ())] or [asked["prompt"]]
        return web.json_response({"tokens": [1, 2, *map(ord, "".join(texts))]})

    async def _detokenize(self, request: web.Request) -> web.Response:
        asked = loads(await request.read())
        return web.json_response({"prompt": "".join(map(chr, asked["tokens"]))})

    async def _post(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(loads(await request.read()))
        self.arrivals.release()
        return await self.play(request)
