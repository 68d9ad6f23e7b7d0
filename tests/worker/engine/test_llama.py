"""llama.cpp for real: a child process, a model file, an answer."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from protocol.errors import SetupError
from protocol.wire import JsonObject
from tests.worker.engine.attempts import chat, collect, completion
from worker.assemble import assemble
from worker.continuation import continuation
from worker.engine.base import Capacity, EngineDead, EngineLoad, EngineRequest, SleepRefused
from worker.engine.llama import LlamaEngine
from worker.engine.model_file import ensure_model
from worker.engine.options import EngineOptions

pytest.importorskip("xllamacpp")


@pytest.fixture(scope="session")
def model_path() -> Path:
    try:
        return ensure_model()
    except SetupError as error:
        pytest.skip(str(error))


@pytest.fixture
async def engine(model_path: Path) -> AsyncIterator[LlamaEngine]:
    built = LlamaEngine(EngineOptions(slots=2, context_tokens=512, model_path=model_path))
    assert await built.start() == Capacity(2, 512, 1024, continues_chats=True)
    yield built
    await built.close()


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "llama_child" in " ".join(child.cmdline())]


@pytest.mark.model
async def test_it_knows_the_capital_of_france(engine: LlamaEngine) -> None:
    wanted = chat("What is the capital of France?", temperature=0, max_tokens=32)
    full = assemble(wanted.endpoint, await collect(engine, wanted))
    assert "Paris" in full["choices"][0]["message"]["content"]
    assert full["usage"]["completion_tokens"] > 0
    assert (await engine.load()).resident_bytes > 100_000_000


@pytest.mark.model
async def test_it_goes_on_with_a_text_that_it_began(engine: LlamaEngine) -> None:
    async def text(wanted: EngineRequest) -> str:
        choice = assemble(wanted.endpoint, await collect(engine, wanted))["choices"][0]
        return str(choice["message"]["content"] if "message" in choice else choice["text"])

    asked = chat("Tell me of the sea.", temperature=0, max_tokens=40)
    whole = await text(asked)
    cut = whole[: whole.index(" ", len(whole) // 2)]
    body = continuation(asked.endpoint, asked.body, cut, chats=True)
    assert isinstance(body, dict)
    rest = await text(replace(asked, body={**body, "max_tokens": 20}))
    assert whole.startswith((cut + rest)[: len(whole)])
    asked = completion("The sea is", temperature=0, max_tokens=40)
    whole = await text(asked)
    cut = whole[: whole.index(" ", len(whole) // 2)]
    body = continuation(asked.endpoint, asked.body, cut, chats=True)
    assert isinstance(body, dict)
    assert whole.startswith(cut + (await text(replace(asked, body={**body, "max_tokens": 5}))))


@pytest.mark.model
async def test_a_message_that_looks_like_special_tokens_is_text_alone(engine: LlamaEngine) -> None:
    async def answer(content: Any, **options: Any) -> JsonObject:
        wanted = chat(content, temperature=0, max_tokens=24, **options)
        return assemble(wanted.endpoint, await collect(engine, wanted))

    async def prompt_tokens(content: Any) -> int:
        return int((await answer(content))["usage"]["prompt_tokens"])

    # As many tokens as its like that is none: < | im _ and | >.
    assert await prompt_tokens("<|im_end|>") == await prompt_tokens("<|im_and|>") > 5 + await prompt_tokens("hello")
    parts = [{"type": "text", "text": "a<|im_end|>b"}, {"type": "text", "text": "<|im_end|><|im_end|>"}]
    assert await prompt_tokens(parts) == await prompt_tokens("a<|im_and|>b\n<|im_and|><|im_and|>")
    assert await prompt_tokens("a\0b") == await prompt_tokens("a\x01b")
    told = await answer("What does <|im_end|> mean?", logprobs=True, top_logprobs=2)
    assert told["object"] == "chat.completion"
    (choice,) = told["choices"]
    assert choice["message"]["role"] == "assistant"
    assert "<|im_end|>" in choice["message"]["content"]
    assert len(choice["logprobs"]["content"][0]["top_logprobs"]) == 2


@pytest.mark.model
async def test_a_killed_child_is_noticed_and_can_be_started_again(engine: LlamaEngine) -> None:
    reader = engine.generate(chat("Tell me a long story.", max_tokens=400))
    await anext(reader)
    dying = asyncio.ensure_future(engine.wait_dead())
    (child,) = children()
    child.send_signal(signal.SIGKILL)
    with pytest.raises(EngineDead) as caught:
        [chunk async for chunk in reader]
    assert caught.value.reached
    assert await asyncio.wait_for(dying, 10) == "the engine's process ended with signal 9"
    await engine.start()
    await engine.close()
    assert children() == []
    assert await engine.load() == EngineLoad()


@pytest.mark.model
def test_the_child_dies_with_a_parent_that_is_killed(model_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from worker.engine.llama import LlamaEngine\n"
        "from worker.engine.options import EngineOptions\n"
        "async def main():\n"
        "    await LlamaEngine(EngineOptions(model_path=Path(sys.argv[1]))).start()\n"
        "    print('up', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())"
    )
    arguments = [sys.executable, "-c", code, str(model_path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        (child,) = psutil.Process(parent.pid).children()
        os.kill(parent.pid, signal.SIGKILL)
        with suppress(psutil.NoSuchProcess):
            child.wait(timeout=10)
        assert not child.is_running()


async def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    engine = LlamaEngine(EngineOptions(model_path=tmp_path / "none.gguf"))
    with pytest.raises(EngineDead, match="process ended") as caught:
        await engine.start()
    assert not caught.value.reached
    await engine.close()


async def test_it_neither_sleeps_nor_tells_what_its_cache_holds() -> None:
    engine = LlamaEngine(EngineOptions())
    assert engine.prefixes() == frozenset()
    for order in (engine.sleep, engine.wake):
        with pytest.raises(SleepRefused, match=r"llama\.cpp"):
            await order()
