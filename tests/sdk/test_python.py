"""The unmodified `openai` package of Python against processes: what it gets when all goes well."""

import asyncio
import io

import pytest
from openai import OpenAI
from openai.types import Batch

from protocol.wire import dumps, loads
from tests.sdk.front import CHAT, MODEL, Front
from tests.support.waiting import eventually

pytestmark = pytest.mark.sdk


def test_a_chat(sdk: OpenAI) -> None:
    answer = sdk.chat.completions.create(**CHAT, max_tokens=7)
    assert len((answer.choices[0].message.content or "").split()) == 7
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage
    assert answer.usage.completion_tokens == 7


def test_a_stream_with_its_usage(sdk: OpenAI) -> None:
    whole = sdk.chat.completions.create(**CHAT, max_tokens=40)
    with sdk.chat.completions.create(
        **CHAT, max_tokens=40, stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage


def test_what_is_on_the_wire(front: Front) -> None:
    """Events of one chunk each, the usage last but one, `[DONE]` last."""
    body = CHAT | {"max_tokens": 5, "stream": True, "stream_options": {"include_usage": True}}
    with front.http() as http:
        answer = http.post("/v1/chat/completions", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("data: [DONE]\n\n")
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    usage = [loads(line).get("usage") for line in lines[:-1]]
    assert usage[-1]["completion_tokens"] == 5
    assert not any(usage[:-1])


def test_the_helper_for_streams(sdk: OpenAI) -> None:
    whole = sdk.chat.completions.create(**CHAT)
    with sdk.chat.completions.stream(**CHAT) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == whole.choices[0].message.content


def test_completions(sdk: OpenAI) -> None:
    answer = sdk.completions.create(model=MODEL, prompt=["one", "two"], max_tokens=5)
    stream = sdk.completions.create(model=MODEL, prompt="one", max_tokens=5, stream=True)
    assert [len(choice.text.split()) for choice in answer.choices] == [5, 5]
    assert len("".join(chunk.choices[0].text for chunk in stream).split()) == 5


@pytest.mark.parametrize("form", ["float", "base64"])
def test_embeddings(sdk: OpenAI, form: str) -> None:
    """The client asks for base64 by itself."""
    how = {"encoding_format": form} if form == "float" else {}
    answer = sdk.embeddings.create(model=MODEL, input=["one", "two"], dimensions=8, **how)  # type: ignore[arg-type]  # a literal of both
    assert [len(item.embedding) for item in answer.data] == [8, 8]
    assert all(isinstance(number, float) for number in answer.data[0].embedding)


def test_models(sdk: OpenAI) -> None:
    assert MODEL in {model.id for model in sdk.models.list()}
    assert sdk.models.retrieve(MODEL).id == MODEL


def test_a_batch_from_its_file_to_its_results(sdk: OpenAI) -> None:
    rows = [
        {"custom_id": f"r{n}", "method": "POST", "url": "/v1/chat/completions", "body": CHAT | {"max_tokens": 4}}
        for n in range(6)
    ]
    content = b"\n".join(map(dumps, rows))
    file = sdk.files.create(file=io.BytesIO(content), purpose="batch")
    key = {"idempotency-key": f"once {file.id}"}
    made, again = [
        sdk.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", extra_headers=key
        )
        for _ in range(2)
    ]

    def ended() -> Batch | None:
        seen = sdk.batches.retrieve(made.id)
        return seen if seen.status in ("completed", "failed", "expired", "cancelled") else None

    done = asyncio.run(eventually(ended, 60))
    assert done
    assert (done.status, again.id) == ("completed", made.id)
    assert done.request_counts
    assert (done.request_counts.total, done.request_counts.completed) == (6, 6)
    assert done.output_file_id
    lines = [loads(line) for line in sdk.files.content(done.output_file_id).content.splitlines()]
    assert {line["custom_id"] for line in lines} == {row["custom_id"] for row in rows}
    assert made.id in {batch.id for batch in sdk.batches.list(limit=1)}
    assert {file.id, done.output_file_id} <= {one.id for one in sdk.files.list(limit=1)}
    assert sdk.batches.cancel(made.id).status == "completed"
    assert sdk.files.content(file.id).content == content
    assert sdk.files.delete(file.id).deleted
