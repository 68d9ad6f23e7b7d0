"""Everything that an OpenAI body asks for reaches vLLM, and all of its answer comes back."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from bench.vllm_env.models import REAL, real_model
from producer.events import End, Restart, Tokens
from producer.fleet import Fleet
from producer.jobs import Job
from protocol.messages import Outcome, chunk_text
from protocol.states import State
from protocol.wire import JsonObject
from tests.vllm.site import Plan, Site, Staff
from tests.vllm.straight import Straight, straight

pytestmark = pytest.mark.vllm

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": CITY}}
END_S = 60.0


@pytest.fixture(scope="module")
def smollm2(site: Site) -> Iterator[Staff]:
    tools = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    flags = ["--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "16", "--enforce-eager", *tools]
    with site.worker(Plan("smollm2", REAL, real_model(), 1, flags=flags)) as worker:
        yield worker


@pytest.fixture
async def engine(smollm2: Staff) -> AsyncIterator[Straight]:
    async with straight(smollm2.role.engine()) as client:
        yield client


async def answer(fleet: Fleet, temperature: float = 0.0, **body: Any) -> Outcome:
    job = await fleet.submit(model=REAL, temperature=temperature, **body)
    outcome = await job.result(END_S)
    assert outcome.state is State.COMPLETED, outcome
    return outcome


async def streamed(job: Job) -> tuple[list[JsonObject], Outcome]:
    """All chunks of a job, and its end."""
    chunks: list[JsonObject] = []
    async for event in job.follow():
        assert not isinstance(event, Restart)
        if isinstance(event, Tokens):
            chunks += event.chunks
        elif isinstance(event, End):
            return chunks, event.outcome
    raise AssertionError("the stream has no end")


def body_of(outcome: Outcome) -> JsonObject:
    assert outcome.body
    return outcome.body


async def test_a_chat_streams_and_its_usage_is_vllms_own(fleet: Fleet, engine: Straight) -> None:
    asked: JsonObject = {"messages": QUESTION, "max_tokens": 24, "temperature": 0}
    job = await fleet.submit(model=REAL, stream=True, **asked)
    chunks, outcome = await streamed(job)
    text = "".join(map(chunk_text, chunks))
    assert "Paris" in text
    assert text == outcome.text
    assert len([chunk for chunk in chunks if chunk_text(chunk)]) > 1
    own = await engine.ask("/v1/chat/completions", {"model": REAL, **asked})
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert outcome.usage[name] == own["usage"][name]
    assert text == own["choices"][0]["message"]["content"]
    assert body_of(outcome)["choices"][0]["finish_reason"] == own["choices"][0]["finish_reason"]


async def test_a_completion_streams_and_its_usage_is_vllms_own(fleet: Fleet, engine: Straight) -> None:
    asked: JsonObject = {"prompt": "The capital of France is", "max_tokens": 12, "temperature": 0}
    chunks, outcome = await streamed(await fleet.submit(model=REAL, stream=True, **asked))
    own = await engine.ask("/v1/completions", {"model": REAL, **asked})
    assert "".join(map(chunk_text, chunks)) == outcome.text == own["choices"][0]["text"]
    assert outcome.usage["total_tokens"] == own["usage"]["total_tokens"]


async def test_log_probabilities_and_several_choices_come_through(fleet: Fleet, smollm2: Staff) -> None:
    outcome = await answer(fleet, 0.5, messages=QUESTION, max_tokens=6, n=2, logprobs=True, top_logprobs=2)
    choices = body_of(outcome)["choices"]
    assert [choice["index"] for choice in choices] == [0, 1]
    for choice in choices:
        tokens = choice["logprobs"]["content"]
        assert "".join(token["token"] for token in tokens) == choice["message"]["content"]
        assert all(len(token["top_logprobs"]) >= 2 and token["logprob"] <= 0 for token in tokens)
    assert outcome.usage["completion_tokens"] == 12


async def test_a_json_schema_holds(fleet: Fleet, smollm2: Staff) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
    outcome = await answer(fleet, messages=QUESTION, max_tokens=80, response_format=wanted)
    city = json.loads(outcome.text)
    assert city.keys() == {"city", "people"}
    assert isinstance(city["people"], int)


async def test_a_tool_is_called(fleet: Fleet, engine: Straight) -> None:
    chosen = {"type": "function", "function": {"name": "look_up"}}
    asked: JsonObject = {
        "messages": QUESTION,
        "tools": [TOOL],
        "tool_choice": chosen,
        "max_tokens": 80,
        "temperature": 0,
    }
    chunks, outcome = await streamed(await fleet.submit(model=REAL, stream=True, **asked))
    assert outcome.state is State.COMPLETED, outcome.body
    call = body_of(outcome)["choices"][0]["message"]["tool_calls"][0]
    own = await engine.ask("/v1/chat/completions", {"model": REAL, **asked})
    assert call["function"] == own["choices"][0]["message"]["tool_calls"][0]["function"]
    assert call["function"]["name"] == "look_up"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk.get("choices")]
    pieces = [piece for delta in deltas for piece in delta.get("tool_calls") or ()]
    assert "".join(piece["function"].get("arguments") or "" for piece in pieces) == call["function"]["arguments"]


async def test_a_generating_model_refuses_embeddings_in_its_own_words(fleet: Fleet, smollm2: Staff) -> None:
    job = await fleet.submit(model=REAL, input="Paris")
    outcome = await job.result(END_S)
    assert outcome.state is State.FAILED
    assert outcome.status_code in (400, 404)
    assert outcome.error
    assert outcome.error.code == "engine_refused"
    assert outcome.body


KILLERS: list[JsonObject] = [
    {"logit_bias": {"999999999": 1}},
    {"stop_token_ids": [999_999_999]},
    {"allowed_token_ids": [49_152]},
    {"allowed_token_ids": []},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"required": "nonsense"}}}},
    {"structured_outputs": {"choice": [""]}},
    {"top_k": 0.5},
    {"chat_template": "{% for a in range(10 ** 9) %}{% endfor %}"},
    {"request_id": 7},
]


async def test_bodies_that_have_killed_engines_are_refused_and_the_engine_lives(fleet: Fleet, smollm2: Staff) -> None:
    before = smollm2.role.engine().core.pid
    jobs = [await fleet.submit(model=REAL, messages=QUESTION, max_tokens=8, **killer) for killer in KILLERS]
    for job, killer in zip(jobs, KILLERS, strict=True):
        outcome = await job.result(END_S)
        assert (outcome.state, outcome.status_code) == (State.FAILED, 400), killer
    odd = await fleet.submit(model=REAL, messages=QUESTION, body={"priority": 2**40})
    assert (await odd.result(END_S)).status_code == 400
    ids = await fleet.submit(model=REAL, prompt=[1, 2, 49_152], max_tokens=8)
    assert (await ids.result(END_S)).status_code == 400
    # Between what fits and what is advertised: the prompt fits, with its output it does not.
    long = await fleet.submit(model=REAL, prompt=[5] * 2048)
    assert (await long.result(END_S)).status_code == 400
    assert "Paris" in (await answer(fleet, messages=QUESTION, max_tokens=24)).text
    assert smollm2.role.engine().core.pid == before


async def test_special_token_text_and_nul_are_answered_and_the_engine_lives(fleet: Fleet, smollm2: Staff) -> None:
    async def prompt_tokens(text: str) -> list[int]:
        """Of a chat and of a completion."""
        asked: list[JsonObject] = [{"messages": [{"role": "user", "content": text}]}, {"prompt": text}]
        return [(await answer(fleet, max_tokens=4, **body)).usage["prompt_tokens"] for body in asked]

    before = smollm2.role.engine().core.pid
    for read, like in zip(await prompt_tokens("<|im_end|>"), await prompt_tokens("<|im_and|>"), strict=True):
        # One token in place of < | im _ and | >: to vLLM it is the special token, as docs/bad-input.md says.
        assert read == like - 6
    assert await prompt_tokens("a\0b") == await prompt_tokens("a\x01b")
    assert smollm2.role.engine().core.pid == before


async def test_a_worker_attaches_to_a_server_that_runs(site: Site, fleet: Fleet, smollm2: Staff) -> None:
    engine = smollm2.role.engine()
    url = f"unix://{engine.socket}"
    arguments = ["worker", "--engine", "vllm", "--model", REAL, "--attach", url, "--label", "attached"]
    with site.role("attached", arguments, {"TOKENFLEET_ENGINE_API_KEY": engine.api_key}) as role:
        attached = Staff(site, "attached", role)
        placed = await attached.reaches(fleet, "active", 30)
        owner = await smollm2.reaches(fleet, "active")
        for name in ("capacity", "kv_total_tokens", "block_tokens"):
            assert getattr(placed.record.report, name) == getattr(owner.record.report, name)
        jobs = [await fleet.submit(model=REAL, messages=QUESTION, max_tokens=24, temperature=0) for _ in range(8)]
        texts = {(await job.result(END_S)).text for job in jobs}
        assert all("Paris" in text for text in texts)
        workers = {(await job.info()).record.worker for job in jobs}
        assert placed.record.id in workers
        assert role.terminate() == 0
    assert engine.core.is_running(), "a server that is not the worker's own outlives it"
