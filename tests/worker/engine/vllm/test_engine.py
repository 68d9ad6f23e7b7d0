"""A vLLM that runs already: a real HTTP server that speaks like it, well and badly."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import zmq
import zmq.asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from protocol.errors import SetupError
from protocol.states import Priority
from protocol.wire import JsonObject
from tests.support.waiting import FakeClock, eventually
from tests.worker.engine.attempts import chat, collect, embedding
from tests.worker.engine.vllm.stand_in import CRASH, HELLO, StandIn, default_config, said, streams
from tests.worker.engine.vllm.test_kv_events import message, stored
from worker.engine.base import (
    Capacity,
    EngineDead,
    EngineFault,
    EngineLoad,
    EngineRefused,
    SleepRefused,
)
from worker.engine.options import EngineOptions
from worker.engine.vllm import life
from worker.engine.vllm.engine import VllmEngine

CAPACITY = Capacity(4, 2048, 1600, 16, ("m", "adapter"), continues_chats=True)
PREFIX = ("h1", "h2")
LONG = replace(chat("x" * 2044), prefix=PREFIX)
"""2,048 characters with the role, 32 tokens, two blocks."""


@pytest.fixture
def stand_in() -> StandIn:
    return StandIn(key="key")


@pytest.fixture
async def server(stand_in: StandIn) -> AsyncIterator[TestServer]:
    server = TestServer(stand_in.app(), handler_cancellation=True)
    await server.start_server()
    yield server
    await server.close()


def attach(server: TestServer, **more: object) -> VllmEngine:
    options = EngineOptions(model="m", attach=str(server.make_url("/v1")), api_key="key", stall_s=0.3)
    return VllmEngine(replace(options, **more))  # type: ignore[arg-type] # any option


@pytest.fixture
async def engine(server: TestServer) -> AsyncIterator[VllmEngine]:
    built = attach(server)
    assert await built.start() == CAPACITY
    yield built
    await built.close()


async def test_requests_carry_priority_salt_and_session(engine: VllmEngine, stand_in: StandIn) -> None:
    wanted = replace(chat("Hi", priority=-1, tools=[]), priority=Priority.LOW, tenant="a")
    assert (await collect(engine, wanted))[-1]["usage"]["total_tokens"] == 34
    (body,) = stand_in.bodies
    assert (body["priority"], body["session_id"], body["stream"]) == (2, wanted.request_id, True)
    assert len(body["cache_salt"]) == 32


async def test_a_server_without_priorities_gets_none(server: TestServer, stand_in: StandIn) -> None:
    stand_in.config = {**default_config(), "scheduler_config": {"max_num_seqs": 4, "policy": "fcfs"}}
    engine = attach(server)
    await engine.start()
    await collect(engine, replace(chat("Hi"), priority=Priority.LOW))
    assert stand_in.bodies[0]["priority"] == 0
    await engine.close()


async def test_the_load_is_the_servers_own(engine: VllmEngine, stand_in: StandIn) -> None:
    stand_in.tokens = 50
    assert await engine.load() == EngineLoad(3, 1, 800, 70, 50, 70, 16, 2)


async def test_the_server_is_not_asked_for_its_load_each_time(
    engine: VllmEngine, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine._living(), "_clock", clock := FakeClock())
    stand_in.tokens = 50
    first = await engine.load()
    stand_in.tokens = 60
    clock.advance(life.READ_S / 2)
    assert await engine.load() == first
    clock.advance(life.READ_S / 2)
    assert (await engine.load()).generated_tokens == 60


async def test_the_load_of_a_server_that_is_gone_is_nothing(engine: VllmEngine, server: TestServer) -> None:
    await server.close()
    assert await engine.load() == EngineLoad()
    assert "3 health checks" in await asyncio.wait_for(engine.wait_dead(), 5)


async def test_bodies_that_kill_engines_do_not_reach_it(engine: VllmEngine, stand_in: StandIn) -> None:
    with pytest.raises(EngineRefused) as caught:
        await collect(engine, chat("Hi", seed=2**64))
    assert caught.value.status_code == 400
    assert stand_in.bodies == []


async def test_without_events_prompts_are_assumed_to_be_held(engine: VllmEngine) -> None:
    assert engine.prefixes() == frozenset()
    await collect(engine, LONG)
    assert engine.prefixes() == set(PREFIX)
    assert engine.prefixes() is engine.prefixes()


async def test_events_tell_what_is_held(server: TestServer, stand_in: StandIn, tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path / 'kv'}"
    stand_in.config = default_config(endpoint)
    with zmq.asyncio.Context() as context, context.socket(zmq.XPUB) as publisher:
        publisher.bind(endpoint)
        engine = attach(server)
        await engine.start()
        async with asyncio.timeout(5):
            assert await publisher.recv() == b"\x01"
        await collect(engine, LONG)
        assert engine.prefixes() == frozenset()
        await publisher.send_multipart(message(0, stored(1, 2, session=LONG.request_id)))
        await eventually(lambda: engine.prefixes() == set(PREFIX))
        await engine.sleep()
        assert engine.prefixes() == frozenset()
        await engine.close()


async def test_sleep_and_wake_are_orders_to_the_server(engine: VllmEngine, stand_in: StandIn) -> None:
    await collect(engine, LONG)
    await engine.sleep()
    assert engine.prefixes() == frozenset()
    await engine.wake()
    assert stand_in.orders == ["/sleep?level=1", "/wake_up"]


async def test_sleep_is_refused_while_something_runs(engine: VllmEngine, stand_in: StandIn) -> None:
    stand_in.play = streams(said("a"), then=asyncio.Event())
    reader = engine.generate(chat("Hi"))
    await anext(reader)
    with pytest.raises(SleepRefused, match="running"):
        await engine.sleep()
    await reader.aclose()
    stand_in.order_status = 500
    for order in (engine.sleep, engine.wake):
        with pytest.raises(SleepRefused, match="500"):
            await order()


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({**default_config(), "device_config": {"device": "cpu"}}, "CPU"),
        ({**default_config(), "model_config": {"max_model_len": 2048}}, "--enable-sleep-mode"),
        (None, "VLLM_SERVER_DEV_MODE"),
    ],
)
async def test_a_server_that_can_not_sleep_is_not_asked(
    server: TestServer, stand_in: StandIn, config: JsonObject | None, why: str
) -> None:
    stand_in.config = config
    engine = attach(server, slots=2)
    await engine.start()
    for order in (engine.sleep, engine.wake):
        with pytest.raises(SleepRefused, match=why):
            await order()
    assert stand_in.orders == []
    await engine.close()


async def test_an_engine_that_is_gone_takes_no_orders(engine: VllmEngine, server: TestServer) -> None:
    await server.close()
    with pytest.raises(EngineDead):
        await engine.sleep()
    await engine.close()
    for order in (engine.sleep, engine.wake):
        with pytest.raises(EngineDead):
            await order()


async def test_a_crash_is_a_strike_although_the_health_says_yes_at_first(engine: VllmEngine, stand_in: StandIn) -> None:
    stand_in.play = streams(said("a"), CRASH)
    collecting = asyncio.ensure_future(collect(engine, chat("secret")))
    await asyncio.wait_for(stand_in.arrivals.acquire(), 5)
    await eventually(lambda: engine._living().progress.flights == 0)
    assert not collecting.done()
    stand_in.health = 503
    with pytest.raises(EngineDead) as caught:
        await collecting
    assert caught.value.reached
    assert "secret" not in str(caught.value)
    assert engine._living().dead.done(), "else the job would come back for its next strike"


async def test_a_crash_that_shows_at_once_is_one_strike_and_nobody_waits_for_figures(
    engine: VllmEngine, stand_in: StandIn
) -> None:
    stand_in.metrics_come.clear()
    loading = asyncio.ensure_future(engine.load())
    stand_in.play, stand_in.health = streams(CRASH), 503
    with pytest.raises(EngineDead) as caught:
        await collect(engine, chat("Hi"))
    assert caught.value.reached
    assert engine._living().dead.done()
    assert await asyncio.wait_for(loading, 1) == await asyncio.wait_for(engine.load(), 1) == EngineLoad()


@pytest.mark.parametrize("pieces", [(said("a"), CRASH), (b"data: {\n\n",), (said("a"),), ()])
async def test_a_fault_of_an_engine_that_lives_on_is_a_fault(
    engine: VllmEngine, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, pieces: tuple[bytes, ...]
) -> None:
    monkeypatch.setattr(life, "DYING_S", 0.1)
    stand_in.play = streams(*pieces)
    with pytest.raises(EngineFault):
        await collect(engine, chat("Hi"))
    assert not engine._living().dead.done()


@pytest.mark.parametrize("pieces", [(said("a"),), ()], ids=["in mid-stream", "before a token"])
async def test_a_hung_engine_is_dead_although_it_is_well(
    engine: VllmEngine, stand_in: StandIn, pieces: tuple[bytes, ...]
) -> None:
    stand_in.play = streams(*pieces, then=asyncio.Event())
    with pytest.raises(EngineDead) as caught:
        await asyncio.wait_for(collect(engine, chat("Hi")), 5)
    assert caught.value.reached
    assert "nothing has moved" in str(caught.value)
    assert "nothing has moved" in await engine.wait_dead()


async def test_an_engine_that_hung_takes_jobs_again_only_when_it_has_answered(
    engine: VllmEngine, stand_in: StandIn
) -> None:
    stand_in.play = streams(then=asyncio.Event())
    with pytest.raises(EngineDead):
        await asyncio.wait_for(collect(engine, chat("Hi")), 5)
    for _ in range(2):
        with pytest.raises(EngineDead, match="still hangs"):
            await engine.start()
    stand_in.play = HELLO
    assert await engine.start() == CAPACITY
    assert stand_in.bodies[-1]["max_tokens"] == 1
    assert await collect(engine, chat("Hi"))


async def test_an_engine_that_works_for_others_is_not_hung(engine: VllmEngine, stand_in: StandIn) -> None:
    over = asyncio.Event()
    stand_in.play = streams(said("a"), then=over)
    reading = asyncio.ensure_future(collect(engine, chat("Hi")))
    loop = asyncio.get_running_loop()
    until_s = loop.time() + 1.0

    def works() -> bool:
        stand_in.tokens += 1
        return loop.time() > until_s

    await eventually(works)
    assert not engine._living().dead.done()
    reading.cancel()
    await asyncio.wait([reading])


async def test_embeddings_come_whole(engine: VllmEngine, stand_in: StandIn) -> None:
    async def play(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"object": "list", "data": [], "usage": {"prompt_tokens": 1}})

    stand_in.play = play
    (whole,) = await collect(engine, replace(embedding("Hi"), prefix=PREFIX))
    assert whole["object"] == "list"
    assert {"priority", "cache_salt"} < stand_in.bodies[0].keys()


async def test_a_model_that_is_not_there_is_said(server: TestServer) -> None:
    with pytest.raises(SetupError, match="does not serve x") as caught:
        await attach(server, model="x").start()
    assert "m, adapter" in caught.value.hint


async def test_the_slots_must_be_known(server: TestServer, stand_in: StandIn) -> None:
    stand_in.config = None
    with pytest.raises(SetupError, match="how many requests"):
        await attach(server).start()
    engine = attach(server, slots=7)
    assert (await engine.start()).slots == 7
    await engine.close()


async def test_a_wrong_key_is_said(server: TestServer) -> None:
    with pytest.raises(SetupError, match="API key"):
        await attach(server, api_key="wrong").start()


async def test_a_server_that_never_comes_up_is_dead(server: TestServer, stand_in: StandIn) -> None:
    stand_in.health = 503
    with pytest.raises(EngineDead):
        await attach(server, start_timeout_s=0.2).start()


def test_settings_that_contradict_each_other_are_refused_at_once() -> None:
    with pytest.raises(SetupError, match="http://"):
        VllmEngine(EngineOptions(model="m", attach="localhost:8000"))
    with pytest.raises(SetupError, match="after `--`"):
        VllmEngine(EngineOptions(model="m", attach="http://127.0.0.1:1", arguments=("--dtype", "auto")))
    with pytest.raises(SetupError, match="--port"):
        VllmEngine(EngineOptions(model="m", arguments=("--port", "1")))
