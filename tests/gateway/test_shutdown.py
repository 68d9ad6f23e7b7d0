"""A gateway that is told to stop: what runs is finished or handed over."""

import asyncio

import openai
import pytest

from producer.gateway.outlet import Pace
from producer.gateway.state import GatewayOptions
from protocol.states import State
from protocol.wire import dumps
from tests.gateway.serving import CHAT, events, serving, taken
from tests.producer.tiny import TinyWorker
from tests.support.waiting import eventually


async def test_what_ends_within_the_grace_is_answered(valkey_url: str, worker: TinyWorker) -> None:
    async with serving(valkey_url, grace_s=20) as front, front.sdk() as client, front.http() as http:
        streamed = asyncio.create_task(client.chat.completions.create(**CHAT, stream=True))
        attempt = await taken(worker)
        await attempt.say("one ")
        stream = await streamed
        assert (await http.get("/ready")).status_code == 200
        front.stop.set()
        await eventually(lambda: front.gateway.closing)
        ready, health = await http.get("/ready"), await http.get("/health")
        refused = await http.post("/v1/chat/completions", json=CHAT)
        await attempt.say("two")
        await attempt.finish()
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        await front.ended.wait()
    assert (ready.status_code, health.status_code) == (503, 200)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "gateway_closing")
    assert text == "one two"


async def test_a_stream_is_told_how_to_go_on(valkey_url: str, worker: TinyWorker) -> None:
    async with (
        serving(valkey_url) as first,
        serving(valkey_url) as second,
        first.http() as http,
        second.http() as elsewhere,
    ):
        asked = asyncio.create_task(http.post("/v1/chat/completions", json=CHAT | {"stream": True}))
        attempt = await taken(worker)
        await attempt.say("one ")
        path = f"/v1/requests/{attempt.handle}/stream"
        async with http.stream("GET", path) as stream:
            shown = events(stream.aiter_lines())
            one = await anext(shown)
            first.stop.set()
            last = [event async for event in shown]
        told = [event async for event in events((await asked).aiter_lines())][-1]
        await attempt.say("two")
        await attempt.finish()
        async with elsewhere.stream("GET", path, headers={"last-event-id": one.id}) as stream:
            rest = [event async for event in events(stream.aiter_lines())]
    assert [event.name for event in last] == ["reconnect"]
    assert f'"after":"{one.id}"' in last[0].data
    assert '"code":"gateway_closing"' in told.data
    assert path in told.data
    assert "".join(event.text for event in (one, *rest)) == "one two"


async def test_a_whole_answer_is_asked_for_again_elsewhere(valkey_url: str, worker: TinyWorker) -> None:
    """Its job is cancelled, because the client's second attempt is another one; one with an id of its own goes on."""
    async with serving(valkey_url) as front, front.sdk() as client:
        asked = asyncio.create_task(client.chat.completions.create(**CHAT))
        named = asyncio.create_task(client.chat.completions.create(**CHAT, extra_headers={"x-fleet-id": "mine"}))
        await eventually(lambda: len(front.gateway.stays) == 2)
        attempts = await worker.take()
        front.stop.set()
        for task in (asked, named):
            with pytest.raises(openai.InternalServerError) as closing:
                await task
            assert (closing.value.status_code, closing.value.code) == (503, "gateway_closing")
            assert "x-should-retry" not in closing.value.response.headers
        await front.ended.wait()
        states = {one.handle.own_id: (await front.gateway.fleet.job(one.handle)).record.state for one in attempts}
    assert states.pop("mine") is State.RUNNING
    assert set(states.values()) == {State.CANCELLED}


async def test_a_stream_that_said_nothing_yet_begins_anew_elsewhere(valkey_url: str, worker: TinyWorker) -> None:
    silent = GatewayOptions(pace=Pace(hold_s=20))
    async with serving(valkey_url, options=silent) as front, front.sdk() as client:
        asked = asyncio.create_task(client.chat.completions.create(**CHAT, stream=True))
        attempt = await taken(worker)
        front.stop.set()
        with pytest.raises(openai.InternalServerError) as closing:
            await asked
        await front.ended.wait()
        assert (await front.gateway.fleet.job(attempt.handle)).record.state is State.CANCELLED
    assert (closing.value.status_code, closing.value.code) == (503, "gateway_closing")


async def test_a_body_that_is_complete_after_the_stop_makes_no_job(valkey_url: str, worker: TinyWorker) -> None:
    """Nobody would be left to answer it, and its client tries again."""
    body = dumps(CHAT)
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n"
    async with serving(valkey_url) as front, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(front.url.rpartition(":")[2]))
        writer.write(head.format(len(body)).encode())
        assert b" 100 " in await reader.readline()
        front.stop.set()
        await eventually(lambda: front.gateway.closing)
        writer.write(body)
        answer = await reader.read()
        writer.close()
    assert b"HTTP/1.1 503 " in answer
    assert b"gateway_closing" in answer
    assert await worker.take() == []
