"""Both of OpenAI's clients against a gateway with real vLLM behind it: tools and schemas, as no simulation has them."""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest
from openai import BadRequestError, OpenAI
from pydantic import BaseModel

from bench.vllm_env.models import REAL, real_model
from protocol.wire import loads
from tests.sdk.front import START_S, Front, gateway_of
from tests.sdk.npm import run_npm
from tests.support.servers import free_port
from tests.support.waiting import eventually
from tests.vllm.site import Plan, Site, a_site

pytestmark = [pytest.mark.sdk, pytest.mark.vllm]

QUESTION: Final[Any] = [{"role": "user", "content": "What is the capital of France?"}]
FLAGS = ["--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "4", "--enforce-eager"]
TOOLS = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]


class City(BaseModel):
    """What the model must answer with."""

    city: str
    people: int


SCHEMA = City.model_json_schema() | {"additionalProperties": False}
SCHEMA["properties"]["city"]["maxLength"] = 20
TOOL: Final[Any] = {"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}
NAMED: Final[Any] = {"type": "function", "function": {"name": "look_up"}}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with a_site(tmp_path_factory.mktemp("vllm")) as made:
        yield made


@pytest.fixture(scope="module")
def vllm(site: Site) -> Iterator[Front]:
    plan = Plan("smollm2", REAL, real_model(), 1, flags=[*FLAGS, *TOOLS])
    with (
        site.worker(plan),
        gateway_of(site.folder, site.server.url, free_port()) as front,
        front.client() as client,
    ):

        def served() -> bool:
            return [model.id for model in client.models.list()] == [REAL]

        asyncio.run(eventually(served, START_S))
        yield front


@pytest.fixture
def sdk(vllm: Front) -> Iterator[OpenAI]:
    with vllm.client() as client:
        yield client


def test_a_chat_and_its_stream(sdk: OpenAI) -> None:
    how: dict[str, Any] = {"model": REAL, "messages": QUESTION, "max_tokens": 24, "temperature": 0}
    whole = sdk.chat.completions.create(**how)
    chunks = list(sdk.chat.completions.create(**how, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert "Paris" in text
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage
    assert whole.usage
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


@pytest.mark.parametrize("choice", [NAMED, "required"], ids=["named", "required"])
def test_a_tool(sdk: OpenAI, choice: Any) -> None:
    """Its arguments are JSON, though such a small model does not always make the object that was asked for."""
    how: dict[str, Any] = {"model": REAL, "messages": QUESTION, "tools": [TOOL], "tool_choice": choice}
    how |= {"max_tokens": 80, "temperature": 0}
    (call,) = sdk.chat.completions.create(**how).choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "look_up"
    loads(call.function.arguments)
    with sdk.chat.completions.stream(**how) as stream:
        (streamed,) = stream.get_final_completion().choices[0].message.tool_calls or []
    assert (streamed.function.name, streamed.function.arguments) == ("look_up", call.function.arguments)


def test_a_schema(sdk: OpenAI) -> None:
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}
    how: dict[str, Any] = {"model": REAL, "messages": QUESTION, "max_tokens": 80, "temperature": 0}
    answer = sdk.chat.completions.create(**how, response_format=wanted)
    City.model_validate_json(answer.choices[0].message.content or "")


def test_what_the_engine_refuses(sdk: OpenAI) -> None:
    with pytest.raises(BadRequestError) as refused:
        sdk.chat.completions.create(model=REAL, messages=QUESTION, extra_body={"allowed_token_ids": [99_999_999]})
    assert refused.value.status_code == 400
    assert sdk.chat.completions.create(model=REAL, messages=QUESTION, max_tokens=1).choices


def test_the_npm_package(vllm: Front) -> None:
    run_npm("vllm.test.mjs", vllm, REAL)
