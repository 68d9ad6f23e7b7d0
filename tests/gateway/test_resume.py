"""Streams that break off and go on where they stood, on whichever gateway."""

from collections.abc import AsyncIterator

import httpx
import pytest

from producer.gateway.relay import DONE
from protocol.messages import Outcome
from protocol.states import State
from tests.gateway.serving import CHAT, SentEvent, Served, events, serving, taken
from tests.producer.tiny import TinyWorker, response
from tests.support.proxy import Proxy

LONG = CHAT | {"max_tokens": 300, "ignore_eos": True, "stream": True, "fleet": {"keep": True}}
CUTS = 10


@pytest.fixture
async def two(sim_url: str) -> AsyncIterator[tuple[Served, Served]]:
    async with serving(sim_url) as one, serving(sim_url) as other:
        yield one, other


async def followed(url: str, path: str, after: str, *, cut_after: int = 0) -> list[SentEvent]:
    """The events of a stream through a proxy; with `cut_after` it breaks off after so many."""
    got: list[SentEvent] = []
    async with Proxy(int(url.rpartition(":")[2])) as proxy, client(proxy.port) as http:
        headers = {"last-event-id": after} if after else {}
        async with http.stream("GET", path, headers=headers) as stream:
            assert stream.status_code == 200
            try:
                async for event in events(stream.aiter_lines()):
                    got.append(event)
                    if len(got) == cut_after:
                        # What was on its way is lost: else a slow reader would come to the end before the last cut.
                        proxy.reset()
                        break
            except httpx.TransportError:
                pass
    return got


def client(port: int) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20, trust_env=False)


async def test_a_stream_that_is_cut_ten_times_goes_on_at_two_gateways_in_turn(two: tuple[Served, Served]) -> None:
    async with two[0].http() as http, http.stream("POST", "/v1/chat/completions", json=LONG) as stream:
        path = f"/v1/requests/{stream.headers['x-request-id']}"
        got = [await anext(events(stream.aiter_lines()))]
    for cut in range(CUTS):
        got += await followed(two[(cut + 1) % 2].url, f"{path}/stream", got[-1].id, cut_after=4)
    got += await followed(two[0].url, f"{path}/stream", got[-1].id)
    async with two[1].http() as http:
        whole = (await http.get(path)).json()["response"]["choices"][0]["message"]["content"]
    assert "".join(event.text for event in got) == whole
    ids = [event.id for event in got]
    assert len(set(ids)) == len(ids)
    assert got[-1].data == DONE.decode()


async def test_each_event_is_a_place_to_go_on_from(sim: Served) -> None:
    """Frames hold several chunks: a connection may break between them."""
    async with sim.http() as http:
        async with http.stream("POST", "/v1/chat/completions", json=LONG | {"max_tokens": 30}) as stream:
            path = f"/v1/requests/{stream.headers['x-request-id']}/stream"
            whole = [event async for event in events(stream.aiter_lines())]
        for number, event in enumerate(whole[:-1]):
            async with http.stream("GET", path, params={"after": event.id}) as stream:
                rest = [event async for event in events(stream.aiter_lines())]
            # Who follows anew is told the usage too.
            assert [one.data for one in rest if '"choices":[]' not in one.data] == [
                one.data for one in whole[number + 1 :]
            ]
    assert any("." in event.id for event in whole)


async def test_a_part_of_a_frame_that_is_no_more_begins_anew(front: Served, worker: TinyWorker) -> None:
    async with front.http() as http:
        handle = await submitted(http)
        attempt = await taken(worker)
        await attempt.say("half of it")
        lost = f"{attempt.number}-1.1"
        await attempt.give_back()
        again = await taken(worker)
        await again.say("all of it")
        await again.finish()
        async with http.stream("GET", f"/v1/requests/{handle}/stream", headers={"last-event-id": lost}) as stream:
            got = [event async for event in events(stream.aiter_lines())]
    assert got[0].name == "restart"
    assert "".join(event.text for event in got) == "all of it"


async def test_a_job_that_did_not_stream_is_followed_as_one_piece(front: Served, worker: TinyWorker) -> None:
    async with front.http() as http:
        late = await http.post("/v1/chat/completions", json=CHAT, headers={"x-fleet-wait": "0.01"})
        path = f"/v1/requests/{late.headers['x-request-id']}/stream"
        attempt = await taken(worker)
        outcome = Outcome(state=State.COMPLETED, status_code=200, body=response("all of it", 3))
        await attempt.end(outcome)
        async with http.stream("GET", path) as stream:
            got = [event async for event in events(stream.aiter_lines())]
        async with http.stream("GET", path, headers={"last-event-id": got[0].id}) as stream:
            rest = [event async for event in events(stream.aiter_lines())]
    assert (got[0].text, '"usage"' in got[1].data, got[2].data) == ("all of it", True, "[DONE]")
    assert rest == got[1:]


async def test_what_is_no_place_is_refused(sim: Served) -> None:
    async with sim.http() as http:
        done = await http.post("/v1/chat/completions", json=CHAT | {"max_tokens": 1})
        path = f"/v1/requests/{done.headers['x-request-id']}/stream"
        for wrong in ("5", "1-2-3", "1-1.", "x" * 200, "99999999999999999999-1"):
            refused = await http.get(path, headers={"last-event-id": wrong})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "after")


async def test_who_asks_for_the_head_of_a_stream_does_not_wait_for_its_end(front: Served, worker: TinyWorker) -> None:
    async with front.http() as http:
        handle = await submitted(http)
        await taken(worker)
        assert (await http.head(f"/v1/requests/{handle}/stream")).status_code == 200


async def test_a_failure_is_told_as_an_event_to_who_follows_anew(front: Served, worker: TinyWorker) -> None:
    async with front.http() as http:
        handle = await submitted(http)
        await (await taken(worker)).fail("engine_error")
        async with http.stream("GET", f"/v1/requests/{handle}/stream") as stream:
            got = [event async for event in events(stream.aiter_lines())]
    assert ['"code":"engine_error"' in got[0].data, got[1].data] == [True, "[DONE]"]


async def submitted(http: httpx.AsyncClient) -> str:
    """A stream that nobody follows yet; it goes on."""
    body = CHAT | {"stream": True, "fleet": {"keep": True}}
    async with http.stream("POST", "/v1/chat/completions", json=body) as stream:
        assert stream.status_code == 200
        return str(stream.headers["x-request-id"])
