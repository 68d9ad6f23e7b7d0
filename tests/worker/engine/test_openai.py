"""The client of OpenAI-compatible servers against a real HTTP server that plays well and badly."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from protocol.errors import SetupError
from protocol.wire import JsonObject, dumps, loads
from tests.support.waiting import eventually
from tests.worker.engine.attempts import chat, collect, completion, embedding
from worker.assemble import assemble
from worker.engine.base import (
    Capacity,
    EngineBusy,
    EngineDead,
    EngineError,
    EngineFault,
    EngineLoad,
    EngineRefused,
    SleepRefused,
)
from worker.engine.openai import OpenAIEngine
from worker.engine.options import EngineOptions

Play = Callable[[web.Request], Awaitable[web.StreamResponse]]
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


@dataclass
class Stage:
    """A server whose next answer the test chooses, and what it was asked."""

    play: Play
    well: bool = True
    key: str = ""
    requests: list[JsonObject] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    arrivals: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    """One for each request that came."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a client has left in the middle."""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        for path in ("chat/completions", "completions", "embeddings"):
            app.router.add_post(f"/v1/{path}", self._post)
        return app

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=200 if self.well else 503)

    async def _models(self, request: web.Request) -> web.Response:
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.Response(status=401)
        return web.json_response({"data": [{"id": "m", "max_model_len": 4096}]})

    async def _post(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(loads(await request.read()))
        self.headers.append(request.headers)
        self.arrivals.release()
        return await self.play(request)


def event(chunk: JsonObject) -> bytes:
    return b"data: " + dumps(chunk) + b"\n\n"


def said(content: str, **more: object) -> bytes:
    return event({"id": "x", "choices": [{"index": 0, "delta": {"content": content}}], **more})


DONE = b"data: [DONE]\n\n"
END = event({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
USAGE_CHUNK = event({"id": "x", "choices": [], "usage": USAGE})


def streams(*pieces: bytes) -> Play:
    async def play(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        return response

    return play


def answers(status: int, body: str = "", **headers: str) -> Play:
    async def play(request: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, text=body, headers=named)

    return play


async def breaks(request: web.Request) -> web.StreamResponse:
    """Closes the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@pytest.fixture
async def stage() -> Stage:
    return Stage(streams(said("Hel"), said("lo"), END, USAGE_CHUNK, DONE))


@pytest.fixture
async def server(stage: Stage) -> AsyncIterator[TestServer]:
    server = TestServer(stage.app(), handler_cancellation=True)
    await server.start_server()
    yield server
    await server.close()


@pytest.fixture
async def engine(server: TestServer) -> AsyncIterator[OpenAIEngine]:
    built = OpenAIEngine(EngineOptions(attach=f"{server.make_url('/v1')}", slots=2, stall_s=0.2))
    assert await built.start() == Capacity(2, 4096)
    yield built
    await built.close()


async def test_a_stream_comes_through_with_its_usage(engine: OpenAIEngine, stage: Stage) -> None:
    wanted = chat("Hi", temperature=0.5)
    full = assemble(wanted.endpoint, await collect(engine, wanted))
    assert full["choices"][0]["message"]["content"] == "Hello"
    assert full["usage"] == USAGE
    assert stage.requests == [{**wanted.body, "stream": True, "stream_options": {"include_usage": True}}]
    assert stage.headers[0]["X-Request-Id"] == wanted.request_id


async def test_an_embedding_is_fetched_whole(engine: OpenAIEngine, stage: Stage) -> None:
    stage.play = answers(200, '{"object":"list","data":[]}')
    wanted = embedding("Hi")
    assert await collect(engine, wanted) == [{"object": "list", "data": []}]
    assert stage.requests == [wanted.body]


async def test_missing_usage_is_counted(engine: OpenAIEngine, stage: Stage) -> None:
    stage.play = streams(said("a"), said("b"), END, DONE)
    chunks = await collect(engine, chat("Hi", prompt_tokens=7))
    assert chunks[-1]["usage"]["total_tokens"] == 9
    assert chunks[-1]["choices"] == []


async def test_usage_beside_the_end_is_enough(engine: OpenAIEngine, stage: Stage) -> None:
    last = {"choices": [{"index": 0, "text": "", "finish_reason": "length"}], "usage": USAGE}
    stage.play = streams(event({"choices": [{"index": 0, "text": "a"}]}), event(last), DONE)
    assert (await collect(engine, completion("Hi")))[-1] == last


FAULTS: list[tuple[str, Play, type[EngineError]]] = [
    ("429", answers(429, Retry_After="7"), EngineBusy),
    ("503", answers(503), EngineBusy),
    ("400", answers(400, '{"error":{"message":"bad"}}'), EngineRefused),
    ("500", answers(500, "boom"), EngineFault),
    ("redirect", answers(302, Location="/elsewhere"), EngineFault),
    ("no stream", answers(200, "{}"), EngineFault),
    ("truncated", streams(said("a")), EngineFault),
    ("empty", streams(), EngineFault),
    ("garbage", streams(b"data: {\n\n"), EngineFault),
    ("no text", streams(b"data: \xff\n\n"), EngineFault),
    ("an error in the middle", streams(said("a"), event({"error": {"code": 500}})), EngineFault),
    ("a broken connection", breaks, EngineFault),
]


@pytest.mark.parametrize(("play", "kind"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
async def test_faults_have_types(engine: OpenAIEngine, stage: Stage, play: Play, kind: type[EngineError]) -> None:
    stage.play = play
    with pytest.raises(EngineError) as caught:
        await collect(engine, chat("secret"))
    assert type(caught.value) is kind
    assert "secret" not in str(caught.value)
    load = await engine.load()
    assert (load.running, load.waiting, load.kv_used_tokens) == (0, 0, 0)


async def test_the_engine_says_how_long_to_wait_and_what_is_wrong(engine: OpenAIEngine, stage: Stage) -> None:
    stage.play = answers(429, Retry_After="7")
    with pytest.raises(EngineBusy) as busy:
        await collect(engine, chat("Hi"))
    assert busy.value.retry_after_s == 7.0
    stage.play = answers(422, '{"error":{"message":"bad"}}')
    with pytest.raises(EngineRefused) as refused:
        await collect(engine, chat("Hi"))
    assert (refused.value.status_code, refused.value.body) == (422, {"error": {"message": "bad"}})


async def hangs_before_it_answers(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    return web.Response()


def hangs(stage: Stage, *pieces: bytes) -> Play:
    """Sends the pieces, then nothing until the client leaves."""

    async def play(request: web.Request) -> web.StreamResponse:
        response = await streams(*pieces)(request)
        try:
            await asyncio.Event().wait()
        finally:
            stage.gone.set()
        return response

    return play


async def test_a_silent_stream_is_given_up(engine: OpenAIEngine, stage: Stage) -> None:
    stage.play = hangs(stage, said("a"))
    with pytest.raises(EngineFault, match="silent"):
        await collect(engine, chat("Hi"))
    await asyncio.wait_for(stage.gone.wait(), 5)


async def test_closing_aborts_on_the_server_and_load_counts(engine: OpenAIEngine, stage: Stage) -> None:
    stage.play = hangs(stage, said("a"), said("b"))
    reader = engine.generate(chat("Hi", prompt_tokens=10))
    await anext(reader)
    assert await engine.load() == EngineLoad(running=1, kv_used_tokens=11, generated_tokens=1)
    waiting = [engine.generate(chat("Hi", prompt_tokens=5)) for _ in range(2)]
    stage.play = hangs(stage)
    firsts = [asyncio.ensure_future(anext(other)) for other in waiting]
    for _ in range(3):
        await asyncio.wait_for(stage.arrivals.acquire(), 5)
    assert await engine.load() == EngineLoad(2, 1, 11, generated_tokens=1)
    await reader.aclose()
    await asyncio.wait_for(stage.gone.wait(), 5)
    for first in firsts:
        first.cancel()
    await asyncio.gather(*firsts, return_exceptions=True)
    # What was said before counts on.
    assert await engine.load() == EngineLoad(generated_tokens=1)


@pytest.mark.parametrize("before", [(), (said("a"),)], ids=["no answer", "a broken answer"])
async def test_closing_ends_whoever_still_reads(server: TestServer, stage: Stage, before: tuple[bytes, ...]) -> None:
    """Without a limit on silence, as engines with a watch of their own use it."""
    engine = OpenAIEngine(EngineOptions(attach=str(server.make_url("/")), stall_s=0))
    await engine.start()
    stage.play = hangs(stage, *before) if before else hangs_before_it_answers
    reading = asyncio.ensure_future(collect(engine, chat("Hi")))
    await asyncio.wait_for(stage.arrivals.acquire(), 5)
    for _ in before:
        await eventually(lambda: engine._tally.load(1).kv_used_tokens)
    await engine.close()
    with pytest.raises(EngineFault, match="broke"):
        await asyncio.wait_for(reading, 5)
    await engine.close()


async def test_a_fault_of_a_dying_server_is_its_death(engine: OpenAIEngine, stage: Stage) -> None:
    stage.play = streams(said("a"), event({"error": {"code": 500}}))
    stage.well = False
    with pytest.raises(EngineDead) as caught:
        await collect(engine, chat("Hi"))
    assert caught.value.reached
    assert "3 health checks" in await asyncio.wait_for(engine.wait_dead(), 5)


async def test_a_server_that_is_gone_never_had_the_request(engine: OpenAIEngine, server: TestServer) -> None:
    await server.close()
    with pytest.raises(EngineDead) as caught:
        await collect(engine, chat("Hi"))
    assert not caught.value.reached
    await asyncio.wait_for(engine.wait_dead(), 5)


async def test_a_server_that_does_not_come_up_is_dead(server: TestServer, stage: Stage) -> None:
    stage.well = False
    engine = OpenAIEngine(EngineOptions(attach=str(server.make_url("/")), start_timeout_s=0.2))
    with pytest.raises(EngineDead, match=r"0\.2 s"):
        await engine.start()
    await engine.close()


@pytest.mark.parametrize("key", ["", "right"])
async def test_the_key_is_sent_and_a_wrong_one_is_named(server: TestServer, stage: Stage, key: str) -> None:
    stage.key = "right"
    engine = OpenAIEngine(EngineOptions(attach=str(server.make_url("/")), api_key=key))
    if key:
        assert (await engine.start()).context_tokens == 4096
    else:
        with pytest.raises(SetupError, match="API key"):
            await engine.start()
    await engine.close()


def test_an_address_must_be_a_url() -> None:
    with pytest.raises(SetupError, match="http://"):
        OpenAIEngine(EngineOptions(attach="localhost:8000"))


async def test_it_neither_sleeps_nor_tells_what_its_cache_holds(engine: OpenAIEngine) -> None:
    assert engine.prefixes() == frozenset()
    for order in (engine.sleep, engine.wake):
        with pytest.raises(SleepRefused, match="OpenAI"):
            await order()
