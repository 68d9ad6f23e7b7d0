"""What vLLM tells of tokens, so that another attempt can go on with them."""

from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestServer

from tests.worker.engine.attempts import chat, collect, completion
from tests.worker.engine.vllm.stand_in import StandIn
from tests.worker.engine.vllm.test_engine import attach
from worker.engine.token_ids import ids_of, without_ids
from worker.engine.vllm.engine import VllmEngine


@pytest.fixture
def stand_in() -> StandIn:
    return StandIn(key="key")


@pytest.fixture
async def server(stand_in: StandIn) -> AsyncIterator[TestServer]:
    server = TestServer(stand_in.app())
    await server.start_server()
    yield server
    await server.close()


@pytest.fixture
async def engine(server: TestServer) -> AsyncIterator[VllmEngine]:
    built = attach(server)
    await built.start()
    yield built
    await built.close()


async def test_its_own_tokenizer_tells_tokens(engine: VllmEngine, stand_in: StandIn, server: TestServer) -> None:
    assert len(await engine.tokenize(chat("Hello", max_tokens=3, chat_template_kwargs={"a": 1}))) == 7
    assert stand_in.tokenized[0].keys() == {"model", "messages", "chat_template_kwargs"}
    ids = await engine.tokenize(completion("Hey"))
    assert await engine.detokenize(completion("Hey"), ids[2:]) == "Hey"
    assert await engine.tokenize(chat("Hello", chat_template_kwargs={"chat_template": "{{ x }}"})) == []
    await server.close()
    for _ in range(2):
        assert await engine.tokenize(completion("Hey")) == []
        assert await engine.detokenize(completion("Hey"), ids) == ""
        await engine.close()


async def test_it_is_asked_for_tokens_where_another_attempt_may_need_them(
    engine: VllmEngine, stand_in: StandIn
) -> None:
    await collect(engine, chat("Hi"))
    await collect(engine, chat("Hi", n=2))
    await collect(engine, chat("Hi", return_token_ids=False))
    assert [body.get("return_token_ids") for body in stand_in.bodies] == [True, None, True]


@pytest.mark.parametrize("value", [None, "1", [1, "2"], [-1], [True], {"a": 1}])
def test_what_is_no_list_of_tokens_is_none(value: object) -> None:
    assert ids_of(value) == []


def test_chunks_lose_the_tokens_that_nobody_asked_for() -> None:
    plain = {"id": "c", "choices": [{"index": 0, "text": "a"}]}
    assert without_ids(plain) == (plain, [])
    assert without_ids({"id": "c", "choices": []}) == ({"id": "c", "choices": []}, [])
    told = {"id": "c", "prompt_token_ids": [1], "choices": [{"index": 0, "text": "a", "token_ids": [5, 6]}]}
    assert without_ids(told) == (plain, [5, 6])
    none = {"id": "c", "choices": [{"index": 0, "text": "a", "token_ids": None, "prompt_token_ids": None}]}
    assert without_ids(none) == (plain, [])
