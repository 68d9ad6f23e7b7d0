"""The unmodified `openai` package of Python against processes: each failure as an exception of its own."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.sdk.front import ASLEEP, CHAT, MODEL, Front
from tests.support.servers import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.sdk

LOW: dict[str, Any] = {"fleet": {"priority": "low", "wait": 0, "deadline": 600}}
ENDLESS = {"ignore_eos": True}
PREFILL = 60_000 * "word "
"""Some six seconds of it."""


@pytest.mark.parametrize(
    ("key", "change", "kind", "code"),
    [
        ("wrong", {}, openai.AuthenticationError, "invalid_api_key"),
        ("low", {"extra_body": {"fleet": {"priority": "high"}}}, openai.PermissionDeniedError, "permission_denied"),
        ("all", {"extra_body": {"fleet": {"tenant": "other"}}}, openai.PermissionDeniedError, "permission_denied"),
        ("all", {"model": "nobody's"}, openai.NotFoundError, "model_not_found"),
        ("narrow", {}, openai.NotFoundError, "model_not_found"),
        ("all", {"temperature": -1}, openai.BadRequestError, "invalid_request"),
        ("all", {"messages": []}, openai.BadRequestError, "invalid_request"),
        ("all", {"extra_body": {"fleet": {"id": "a/b"}}}, openai.BadRequestError, "invalid_id"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_refused(
    front: Front, key: str, change: dict[str, Any], kind: type[openai.APIStatusError], code: str, stream: bool
) -> None:
    with front.client(key) as client, pytest.raises(kind) as refused:
        client.chat.completions.create(**CHAT | change, stream=stream)
    assert type(refused.value) is kind
    assert refused.value.code == code


def test_the_same_id_with_another_body(sdk: OpenAI) -> None:
    headers = {"idempotency-key": "python: the same"}
    sdk.chat.completions.create(**CHAT, max_tokens=2, extra_headers=headers)
    with pytest.raises(openai.ConflictError) as refused:
        sdk.chat.completions.create(**CHAT, max_tokens=3, extra_headers=headers)
    assert refused.value.code == "conflicting_id"


def test_a_body_that_is_too_large(sdk: OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        sdk.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": (3 << 20) * "x"}])
    assert (refused.value.status_code, refused.value.code) == (413, "too_large")


def test_what_is_another_tenants_is_not_there(front: Front, sdk: OpenAI) -> None:
    file = sdk.files.create(file=b"{}", purpose="batch")
    with front.client("stranger") as stranger:
        for ask in (stranger.files.retrieve, stranger.files.content, stranger.files.delete, stranger.batches.retrieve):
            with pytest.raises(openai.NotFoundError):
                ask(file.id)
    assert sdk.files.delete(file.id).deleted


def test_an_answer_that_takes_too_long(sdk: OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as late:
        sdk.chat.completions.create(**CHAT | {"model": ASLEEP}, extra_body={"fleet": {"wait": 0}})
    assert (late.value.status_code, late.value.code) == (504, "wait_timeout")


def test_a_full_queue(front: Front) -> None:
    """A tenant may have two jobs waiting in this lane."""
    with front.client("full") as client:
        for status, code in ((504, "wait_timeout"), (504, "wait_timeout"), (503, "queue_full")):
            with pytest.raises(openai.InternalServerError) as refused:
                client.chat.completions.create(**CHAT | {"model": ASLEEP}, extra_body=LOW)
            assert (refused.value.status_code, refused.value.code) == (status, code)
    assert int(refused.value.response.headers["retry-after"]) >= 1


def test_a_deadline_that_can_not_be_met(sdk: OpenAI) -> None:
    """The scheduler says so at once, and how long it would take."""
    wanted = {"fleet": {"priority": "low", "deadline": 2}}
    with pytest.raises(openai.InternalServerError, match=r"would come \d+ ms after") as refused:
        sdk.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": PREFILL}], extra_body=wanted)
    assert (refused.value.status_code, refused.value.code) == (503, "unreachable")


def test_a_stream_that_ends_in_the_middle(front: Front, sdk: OpenAI) -> None:
    with sdk.chat.completions.create(**CHAT, max_tokens=30_000, stream=True, extra_body=ENDLESS) as stream:
        next(stream)
        with front.http() as http:
            http.post(f"/v1/requests/{stream.response.headers['x-request-id']}/cancel")
        with pytest.raises(openai.APIError) as broken:
            list(stream)
    assert broken.value.code == "cancelled"


def test_a_client_that_waits_for_so_long_only(front: Front) -> None:
    """What it gave up is cancelled: it says nothing of keeping it."""
    named = {"x-fleet-id": "python-timeout"}
    with front.client(timeout=0.5) as client, pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(**CHAT | {"model": ASLEEP}, extra_headers=named)
    with front.http() as http:

        def cancelled() -> bool:
            looked = http.get(f"/v1/requests/{ASLEEP}.0.acme.python-timeout").json()
            return str(looked["status"]) == "cancelled"

        assert asyncio.run(eventually(cancelled, 20))


def test_nobody_is_there() -> None:
    with (
        OpenAI(base_url=f"http://127.0.0.1:{free_port()}/v1", api_key="any", max_retries=0) as client,
        pytest.raises(openai.APIConnectionError),
    ):
        client.models.list()


@pytest.fixture
def refusals() -> Iterator[tuple[httpx.Client, threading.Event]]:
    """A transport that tells of the first 429."""
    seen = threading.Event()

    def look(answer: httpx.Response) -> None:
        if answer.status_code == 429:
            seen.set()

    with httpx.Client(event_hooks={"response": [look]}, trust_env=False) as transport:
        yield transport, seen


def test_a_limit_and_how_the_client_waits_for_it(front: Front, refusals: tuple[httpx.Client, threading.Event]) -> None:
    """The key may have one job at once; the client comes back when it was told to, and gets its answer."""
    transport, refused_once = refusals
    got: list[int] = []
    with front.client("one") as client, front.client("one", max_retries=20, http_client=transport) as patient:
        with client.chat.completions.create(**CHAT, max_tokens=30_000, stream=True, extra_body=ENDLESS) as stream:
            next(stream)
            with pytest.raises(openai.RateLimitError) as limited:
                client.chat.completions.create(**CHAT, max_tokens=2)

            def ask() -> None:
                raw = patient.chat.completions.with_raw_response.create(**CHAT, max_tokens=2)
                got.append(raw.retries_taken)

            waiting = threading.Thread(target=ask)
            waiting.start()
            assert refused_once.wait(30)
        waiting.join(60)
    assert (limited.value.code, limited.value.type) == ("rate_limit_exceeded", "jobs")
    assert limited.value.response.headers["retry-after"] == "1"
    assert limited.value.response.headers["x-ratelimit-limit-requests"] == "10000"
    assert got
    assert got[0] >= 1
