"""What the event stream tells, over a WebSocket."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from producer.gateway.auth import Grant
from protocol.states import State
from protocol.wire import JsonObject, dumps, loads
from tests.gateway.serving import CHAT, Ring, Served, serving, taken
from tests.producer.tiny import Attempt, TinyWorker
from tests.support.waiting import eventually


@pytest.fixture
async def attempt(front: Served, worker: TinyWorker) -> AsyncIterator[Attempt]:
    """A stream that runs, and that its first client has left for good."""
    async with front.http() as http:
        body = CHAT | {"stream": True, "fleet": {"keep": True}}
        asked = asyncio.create_task(http.post("/v1/chat/completions", json=body))
        yield await taken(worker)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)


def url_of(served: Served, attempt: Attempt, after: str = "") -> str:
    return f"{served.url.replace('http', 'ws', 1)}/v1/requests/{attempt.handle}/ws?after={after}"


async def heard(socket: ClientConnection) -> list[JsonObject]:
    return [loads(message) async for message in socket]


def text_of(messages: list[JsonObject]) -> str:
    chunks = [message["data"] for message in messages if message["event"] == "chunk"]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


async def test_a_job_is_followed_from_any_place(front: Served, attempt: Attempt) -> None:
    await attempt.say("one ", "two ")
    async with connect(url_of(front, attempt), proxy=None) as socket:
        first = loads(await socket.recv())
        await attempt.say("three")
        await attempt.finish()
        rest = await heard(socket)
    async with connect(url_of(front, attempt, first["id"]), proxy=None) as socket:
        again = await heard(socket)
    assert text_of([first, *rest]) == "one two three"
    assert again == rest
    assert rest[-1] == {"id": f"{attempt.number}-4", "event": "done", "data": None}
    assert socket.close_code == 1000


async def test_a_restart_and_an_error(front: Served, worker: TinyWorker, attempt: Attempt) -> None:
    async with connect(url_of(front, attempt), proxy=None) as socket:
        await attempt.say("half")
        await socket.recv()
        await attempt.give_back()
        again = await taken(worker)
        await again.say("all")
        await again.fail("engine_error")
        messages = await heard(socket)
    assert [message["event"] for message in messages] == ["restart", "chunk", "chunk", "done"]
    assert messages[2]["data"]["error"]["code"] == "engine_error"


async def test_a_client_may_cancel(front: Served, attempt: Attempt) -> None:
    async with connect(url_of(front, attempt), proxy=None) as socket:
        await socket.send("nonsense")
        await socket.send(dumps({"type": "cancel"}))
        messages = await heard(socket)
    assert messages[0]["data"]["error"]["code"] == "cancelled"


async def test_a_gateway_that_closes_says_where_to_go_on(front: Served, attempt: Attempt) -> None:
    await attempt.say("one")
    async with connect(url_of(front, attempt), proxy=None) as socket:
        place = loads(await socket.recv())["id"]
        front.stop.set()
        last = await heard(socket)
    assert [(message["event"], message["data"]["after"]) for message in last] == [("reconnect", place)]
    assert socket.close_code == 1001


async def test_who_leaves_ends_a_job_that_is_not_kept(front: Served, worker: TinyWorker) -> None:
    async with front.http() as http:
        asked = asyncio.create_task(http.post("/v1/chat/completions", json=CHAT | {"stream": True}))
        attempt = await taken(worker)
        async with connect(url_of(front, attempt), proxy=None):
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            await eventually(lambda: len(front.gateway.stays) == 1)
            assert (await front.gateway.fleet.job(attempt.handle)).record.state is State.RUNNING

    async def cancelled() -> bool:
        return (await front.gateway.fleet.job(attempt.handle)).record.state is State.CANCELLED

    await eventually(cancelled, timeout_s=15)


async def test_a_key_in_a_subprotocol(valkey_url: str, worker: TinyWorker, attempt: Attempt) -> None:
    """Browsers can set no header."""
    ring = Ring({"secret": Grant("default", "k"), "foreign": Grant("foreign", "f")})
    async with serving(valkey_url, ring=ring) as guarded:
        url = url_of(guarded, attempt)
        offered = [Subprotocol("tokenfleet"), Subprotocol("tokenfleet-key.secret")]
        async with connect(url, subprotocols=offered, proxy=None) as socket:
            assert socket.subprotocol == "tokenfleet"
        for more, status in (({}, 401), ({"authorization": "Bearer foreign"}, 404)):
            with pytest.raises(InvalidStatus) as refused:
                await connect(url, additional_headers=more, proxy=None)
            assert refused.value.response.status_code == status
            assert "error" in loads(bytes(refused.value.response.body or b"{}"))
    del worker


async def test_a_message_that_is_too_large(front: Served, attempt: Attempt) -> None:
    async with connect(url_of(front, attempt), proxy=None) as socket:
        await socket.send("x" * 100_000)
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd
    assert closed.value.rcvd.code == 1009
