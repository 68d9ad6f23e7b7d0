"""The unmodified `openai` package against a gateway and a fleet of real processes."""

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest

from producer.gateway.auth import Grant
from producer.gateway.outlet import Pace
from producer.gateway.state import GatewayOptions
from protocol.states import Priority
from protocol.wire import JsonObject
from tests.gateway.serving import CHAT, MODEL, Ring, Served, events, serving, taken, text_of
from tests.producer.tiny import TinyWorker

RING = Ring(
    {
        "ours": Grant("ours", "ours"),
        "low": Grant("low", "low", priorities=(Priority.LOW,)),
        "other": Grant("other", "other", models=("another",)),
    }
)


async def test_a_chat(sim: Served) -> None:
    async with sim.sdk() as client:
        answer = await client.chat.completions.create(**CHAT, max_tokens=7)
    assert answer.object == "chat.completion"
    assert len((answer.choices[0].message.content or "").split()) == 7
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage
    assert answer.usage.completion_tokens == 7


async def test_a_stream_says_what_the_whole_answer_says(sim: Served) -> None:
    async with sim.sdk() as client:
        whole = await client.chat.completions.create(**CHAT, max_tokens=40)
        stream = await client.chat.completions.create(
            **CHAT, max_tokens=40, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage
    assert whole.usage
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


async def test_the_usage_comes_only_to_who_asks(sim: Served) -> None:
    async with sim.sdk() as client:
        chunks = [chunk async for chunk in await client.chat.completions.create(**CHAT, max_tokens=9, stream=True)]
    assert all(chunk.choices for chunk in chunks)
    assert all(chunk.usage is None for chunk in chunks)


async def test_the_helper_for_streams(sim: Served) -> None:
    async with sim.sdk() as client:
        whole = await client.chat.completions.create(**CHAT)
        async with client.chat.completions.stream(**CHAT) as stream:
            final = await stream.get_final_completion()
    assert final.choices[0].message.content == whole.choices[0].message.content


async def test_completions(sim: Served) -> None:
    async with sim.sdk() as client:
        answer = await client.completions.create(model=MODEL, prompt=["one", "two"], max_tokens=5)
        stream = await client.completions.create(model=MODEL, prompt="one", max_tokens=5, stream=True)
        streamed = "".join([chunk.choices[0].text async for chunk in stream])
    assert [len(choice.text.split()) for choice in answer.choices] == [5, 5]
    assert len(streamed.split()) == 5


async def test_embeddings(sim: Served) -> None:
    async with sim.sdk() as client:
        answer = await client.embeddings.create(model=MODEL, input=["one", "two"], dimensions=8)
    assert [len(item.embedding) for item in answer.data] == [8, 8]
    assert answer.usage.prompt_tokens > 0


async def test_models(sim: Served) -> None:
    async with sim.sdk() as client:
        assert [model.id async for model in client.models.list()] == [MODEL]
        assert (await client.models.retrieve(MODEL)).id == MODEL
        with pytest.raises(openai.NotFoundError) as missing:
            await client.models.retrieve("no/such")
    assert missing.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"messages": []}, "messages"),
        ({"n": 17}, "n"),
        ({"stream": "yes"}, "stream"),
        ({"extra_body": {"fleet": {"priority": "urgent"}}}, "fleet.priority"),
        ({"extra_body": {"fleet": {"deadline": -1}}}, "fleet.deadline"),
        ({"extra_body": {"fleet": {"nonsense": 1}}}, "fleet"),
        ({"extra_body": {"fleet": 5}}, "fleet"),
        ({"extra_headers": {"x-fleet-keep": "perhaps"}}, "fleet.keep"),
        ({"extra_headers": {"x-fleet-id": "a/b"}}, "fleet.id"),
    ],
)
async def test_what_is_wrong_is_a_bad_request(sim: Served, wrong: dict[str, object], param: str) -> None:
    async with sim.sdk() as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(**CHAT | wrong)
    assert (refused.value.param, refused.value.type) == (param, "invalid_request_error")


@pytest.mark.parametrize("stream", [False, True])
async def test_an_unknown_model(sim: Served, stream: bool) -> None:
    async with sim.sdk() as client:
        with pytest.raises(openai.NotFoundError) as missing:
            await client.chat.completions.create(**CHAT | {"model": "nobody's"}, stream=stream)
    assert missing.value.code == "model_not_found"


async def test_keys(sim_url: str) -> None:
    async with serving(sim_url, ring=RING) as served:
        async with served.sdk("wrong") as client:
            with pytest.raises(openai.AuthenticationError) as unknown:
                await client.models.list()
        async with served.sdk("low") as client:
            await client.chat.completions.create(**CHAT, max_tokens=1)
            with pytest.raises(openai.PermissionDeniedError):
                await client.chat.completions.create(**CHAT, extra_headers={"x-fleet-priority": "high"})
            with pytest.raises(openai.PermissionDeniedError):
                await client.chat.completions.create(**CHAT, extra_body={"fleet": {"tenant": "ours"}})
        async with served.sdk("other") as client:
            assert (await client.models.list()).data == []
            with pytest.raises(openai.NotFoundError) as hidden:
                await client.chat.completions.create(**CHAT)
        assert unknown.value.code == "invalid_api_key"
        assert MODEL not in hidden.value.message.split()


async def test_another_tenants_request_is_not_there(sim_url: str) -> None:
    async with serving(sim_url, ring=RING) as served, served.sdk("ours") as ours, served.http("low") as theirs:
        raw = await ours.chat.completions.with_raw_response.create(**CHAT, max_tokens=1)
        path = f"/v1/requests/{raw.headers['x-request-id']}"
        for method, more in (("GET", ""), ("GET", "/stream"), ("POST", "/cancel")):
            foreign = await theirs.request(method, path + more)
            absent = await theirs.request(method, f"{path[:-1]}x{more}")
            assert (foreign.status_code, foreign.json()) == (404, absent.json())
        assert (await ours.get(path.removeprefix("/v1"), cast_to=dict[str, object]))["status"] == "completed"


async def test_an_idempotency_key_is_one_job(sim: Served) -> None:
    async with sim.sdk() as client:
        create = client.chat.completions.with_raw_response.create
        first, second = [
            await create(**CHAT, max_tokens=3, extra_headers={"idempotency-key": "my key/1"}) for _ in range(2)
        ]
        assert first.headers["x-request-id"] == second.headers["x-request-id"]
        with pytest.raises(openai.ConflictError) as conflict:
            await create(**CHAT, max_tokens=4, extra_headers={"idempotency-key": "my key/1"})
    assert conflict.value.code == "conflicting_id"


async def test_an_answer_that_takes_too_long_can_be_picked_up(front: Served, worker: TinyWorker) -> None:
    """Nor does the client try again by itself: that would be a second job."""
    async with front.sdk(max_retries=5) as client, front.http() as http:
        with pytest.raises(openai.InternalServerError) as late:
            await client.chat.completions.create(**CHAT, extra_body={"fleet": {"wait": 0.05}})
        assert (late.value.status_code, late.value.code) == (504, "wait_timeout")
        path = f"/v1/requests/{late.value.response.headers['x-request-id']}"
        waiting = (await http.get(path)).json()
        (attempt,) = await worker.take()
        await attempt.finish("at last")
        done = (await http.get(path)).json()
    assert (waiting["status"], waiting["position"]) == ("queued", 0)
    assert done["status"] == "completed"
    assert done["response"]["choices"][0]["message"]["content"] == "at last"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("prompt", "kind", "status"),
    [
        ("refuse 400", openai.BadRequestError, 400),
        ("refuse 422", openai.UnprocessableEntityError, 422),
        ("fail engine_error", openai.InternalServerError, 502),
        ("fail unreachable", openai.InternalServerError, 503),
        ("fail cancelled", openai.ConflictError, 409),
    ],
)
async def test_a_job_that_fails_at_once_has_a_status(
    front: Served, worker: TinyWorker, stream: bool, prompt: str, kind: type[openai.APIStatusError], status: int
) -> None:
    body: JsonObject = {"model": MODEL, "messages": [{"role": "user", "content": prompt}]}
    async with front.sdk() as client:
        asked = asyncio.create_task(client.chat.completions.create(**body, stream=stream))
        await (await taken(worker)).echo()
        with pytest.raises(kind) as failed:
            await asked
    assert failed.value.status_code == status
    assert failed.value.response.headers["x-request-id"]


async def test_a_stream_that_breaks_off_raises_in_the_middle(front: Served, worker: TinyWorker) -> None:
    async with front.sdk() as client:
        asked = asyncio.create_task(client.chat.completions.create(**CHAT, stream=True))
        attempt = await taken(worker)
        await attempt.say("half ", "of it")
        await attempt.fail("engine_error")
        stream = await asked
        texts = [(await anext(stream)).choices[0].delta.content for _ in range(2)]
        with pytest.raises(openai.APIError) as broken:
            await anext(stream)
    assert texts == ["half ", "of it"]
    assert broken.value.code == "engine_error"


async def test_a_restart_is_no_text_said_twice(front: Served, worker: TinyWorker) -> None:
    """What was said counts no more, which OpenAI's protocol can't say: an error that tells where to read anew."""
    async with front.sdk() as client, front.http() as http:
        asked = asyncio.create_task(client.chat.completions.create(**CHAT, stream=True))
        attempt = await taken(worker)
        await attempt.say("half ", "of it")
        stream = await asked
        await attempt.give_back()
        again = await taken(worker)
        await again.say("all of it")
        await again.finish()
        with pytest.raises(openai.APIError) as restarted:
            [chunk async for chunk in stream]
        path = f"/v1/requests/{stream.response.headers['x-request-id']}/stream"
        async with http.stream("GET", path) as anew:
            text = await text_of(events(anew.aiter_lines()))
    assert restarted.value.code == "restarted"
    assert path in restarted.value.message
    assert text == "all of it"


async def test_a_silent_stream_is_kept_alive(valkey_url: str, worker: TinyWorker) -> None:
    """With an id in hand the SDK takes a comment with a blank line after it for an event without data."""
    often = GatewayOptions(pace=Pace(hold_s=0.05, keep_alive_s=0.05))
    async with serving(valkey_url, options=often) as front, front.sdk() as client, front.http() as http:
        asked = asyncio.create_task(client.chat.completions.create(**CHAT, stream=True))
        attempt = await taken(worker)
        await attempt.say("one ")
        stream = await asked
        async with http.stream("GET", f"/v1/requests/{attempt.handle}/stream") as beside:
            await comments(beside.aiter_lines(), 5)
        await attempt.say("two")
        await attempt.finish()
        texts = [chunk.choices[0].delta.content async for chunk in stream]
    assert texts == ["one ", "two"]


async def comments(lines: AsyncIterator[str], count: int) -> None:
    """Read on until so many have come."""
    async for line in lines:
        count -= line.startswith(":")
        if count == 0:
            return
