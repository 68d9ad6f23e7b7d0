"""What becomes of a job whose client has left."""

import asyncio
from dataclasses import replace

import httpx
import pytest

from producer.gateway.jobs import follower
from protocol.states import State
from protocol.wire import JsonObject
from tests.gateway.serving import CHAT, QUICK, Served, events, serving, taken
from tests.producer.tiny import TinyWorker
from tests.support.waiting import eventually

STREAM = CHAT | {"stream": True}


async def left(http: httpx.AsyncClient, worker: TinyWorker, body: JsonObject) -> str:
    """A client submits, its job runs, and it closes the connection; the job's handle."""
    asked = asyncio.create_task(http.post("/v1/chat/completions", json=body))
    attempt = await taken(worker)
    if body.get("stream"):
        await attempt.say("one ")
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    return str(attempt.handle)


async def state_of(served: Served, handle: str) -> State:
    return (await served.gateway.fleet.job(handle)).record.state


@pytest.mark.parametrize("body", [STREAM, CHAT], ids=["stream", "whole"])
async def test_the_job_of_a_client_that_left_is_cancelled(front: Served, worker: TinyWorker, body: JsonObject) -> None:
    async with front.http() as http:
        handle = await left(http, worker, body)

    async def cancelled() -> bool:
        return await state_of(front, handle) is State.CANCELLED

    await eventually(cancelled)


@pytest.mark.parametrize("body", [STREAM, CHAT], ids=["stream", "whole"])
@pytest.mark.parametrize("keep", [True, 30])
async def test_a_job_that_is_to_be_kept_goes_on(
    front: Served, worker: TinyWorker, body: JsonObject, keep: float
) -> None:
    """Its client's leaving is noticed before that of the next one, whose job is not kept."""
    async with front.http() as http:
        kept = await left(http, worker, body | {"fleet": {"keep": keep}})
        other = await left(http, worker, body)

    async def cancelled() -> bool:
        return await state_of(front, other) is State.CANCELLED

    await eventually(cancelled)
    assert await state_of(front, kept) is State.RUNNING


async def test_a_job_waits_a_moment_for_its_client_to_come_back(valkey_url: str, worker: TinyWorker) -> None:
    """Here to another gateway, while its own still waits."""
    patient = replace(QUICK, leave_s=1.5)
    async with serving(valkey_url, options=patient) as first, serving(valkey_url) as second, first.http() as http:
        handle = await left(http, worker, STREAM)
        async with second.http() as back, back.stream("GET", f"/v1/requests/{handle}/stream") as stream:
            shown = events(stream.aiter_lines())
            assert (await anext(shown)).text == "one "
            await eventually(lambda: not first.gateway.leavings.waiting, timeout_s=10)
            assert await state_of(first, handle) is State.RUNNING


@pytest.mark.parametrize(
    ("fleet", "limit_s", "lives_s", "wait_s"),
    [({}, None, 86_400, 600), ({"time_limit": 5, "deadline": 9, "wait": 8}, 5, 9, 8)],
)
async def test_a_job_has_an_end_even_if_its_gateway_is_killed(
    front: Served, worker: TinyWorker, fleet: JsonObject, limit_s: float | None, lives_s: int, wait_s: float
) -> None:
    """No gateway, then, has to be there: an attempt without a limit of its own has its worker's.

    And its worker ends what nobody follows; what is not streamed only while its client would still wait.
    """
    async with front.http() as http:
        for body in (CHAT, STREAM):
            asked = asyncio.create_task(http.post("/v1/chat/completions", json=body | {"fleet": fleet}))
            attempt = await taken(worker)
            record = (await front.gateway.fleet.job(attempt.handle)).record
            left_s = (await follower(front.gateway, attempt.handle, "")).unfollowed_s
            await attempt.finish("done")
            await asked
            assert record.spec.time_limit_s == limit_s
            assert record.deadline_ms - record.submitted_ms == 1000 * lives_s
            assert (record.spec.unfollowed_s, record.spec.followed_s) == (10, None if body is STREAM else wait_s)
            # Who only looks at an answer that another waits for ends nothing by leaving.
            assert left_s == (10 if body is STREAM else None)


async def test_who_comes_back_and_leaves_again_has_its_time_anew(valkey_url: str, worker: TinyWorker) -> None:
    leave_s, clock = 1.0, asyncio.get_running_loop().time
    body = STREAM | {"fleet": {"id": "mine"}}
    async with serving(valkey_url, options=replace(QUICK, leave_s=leave_s)) as front, front.http() as http:
        handle = await left(http, worker, body)
        await eventually(lambda: front.gateway.leavings.waiting)
        long_after = clock() + 0.7 * leave_s
        await eventually(lambda: clock() > long_after)
        async with http.stream("POST", "/v1/chat/completions", json=body) as stream:
            assert (await anext(events(stream.aiter_lines()))).text == "one "
            second_s = clock()

        async def cancelled() -> bool:
            return await state_of(front, handle) is State.CANCELLED

        await eventually(cancelled)
    assert clock() - second_s >= leave_s


async def test_who_follows_anew_and_leaves_ends_it_too(front: Served, worker: TinyWorker) -> None:
    async with front.http() as http:
        asked = asyncio.create_task(http.post("/v1/chat/completions", json=STREAM))
        attempt = await taken(worker)
        await attempt.say("one ")
        async with http.stream("GET", f"/v1/requests/{attempt.handle}/stream") as stream:
            assert (await anext(events(stream.aiter_lines()))).text == "one "
        await eventually(lambda: len(front.gateway.stays) == 1)
        assert front.gateway.leavings.waiting == 1
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)

    async def cancelled() -> bool:
        return await state_of(front, str(attempt.handle)) is State.CANCELLED

    await eventually(cancelled)


async def test_a_client_that_cancels(front: Served, worker: TinyWorker) -> None:
    async with front.http() as http:
        asked = asyncio.create_task(http.post("/v1/chat/completions", json=CHAT))
        attempt = await taken(worker)
        first = await http.post(f"/v1/requests/{attempt.handle}/cancel")
        again = await http.post(f"/v1/requests/{attempt.handle}/cancel")
        answer = await asked
    assert [first.json()["status"], again.json()["status"]] == ["cancelled", "cancelled"]
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "cancelled")
