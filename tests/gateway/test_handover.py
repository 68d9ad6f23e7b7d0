"""A gateway's process that is told to stop while it streams: what it has begun goes on at another one."""

import signal

import httpx

from tests.gateway.serving import CHAT, SentEvent, events
from tests.gateway.test_cli import END_S, running
from tests.support.waiting import eventually

TOKENS = 700
"""About five seconds."""
GRACE = "2"


async def test_a_stream_goes_on_at_another_process(sim_url: str) -> None:
    body = CHAT | {"stream": True, "max_tokens": TOKENS, "ignore_eos": True}
    with running(sim_url, "--open", "--grace", GRACE) as first, running(sim_url, "--open") as second:
        async with httpx.AsyncClient(trust_env=False, timeout=END_S) as http:

            async def refuses() -> bool:
                return (await http.get(f"{first.url}/ready")).status_code == 503

            async with http.stream("POST", f"{first.url}/v1/chat/completions", json=body) as stream:
                path = f"/v1/requests/{stream.headers['x-request-id']}"
                # Each client has a way of its own to be told.
                async with http.stream("GET", f"{first.url}{path}/stream") as followed:
                    shown = events(followed.aiter_lines())
                    got = [await anext(shown)]
                    first.process.send_signal(signal.SIGTERM)
                    await eventually(refuses)
                    got += [event async for event in shown]
                told = [event async for event in events(stream.aiter_lines())]
            assert first.process.wait(END_S) == 0
            rest = await after(http, f"{second.url}{path}/stream", got[-1].id)
            whole = (await http.get(f"{second.url}{path}")).json()["response"]["choices"][0]["message"]["content"]
    assert (got[-1].name, '"code":"gateway_closing"' in told[-1].data) == ("reconnect", True)
    assert "".join(event.text for event in (*got, *rest)) == whole
    assert rest[-1].data == "[DONE]"
    assert len(got) > 10, "it had gone on for the time of grace"


async def after(http: httpx.AsyncClient, url: str, place: str) -> list[SentEvent]:
    async with http.stream("GET", url, headers={"last-event-id": place}) as stream:
        return [event async for event in events(stream.aiter_lines())]
