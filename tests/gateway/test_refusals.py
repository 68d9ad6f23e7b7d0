"""What is well said and yet refused: each state of a fleet has its status, its code, and when to come back."""

import asyncio

import httpx
import pytest
from redis.asyncio import Redis

from producer.gateway.auth import Grant
from producer.gateway.failures import failure_of_end
from producer.gateway.state import GatewayOptions
from protocol.call import run
from protocol.functions import Quotas
from protocol.limits import Limits
from protocol.messages import ErrorInfo, Outcome
from protocol.states import Priority, State
from tests.gateway.serving import CHAT, Ring, Served, serving, taken
from tests.producer.tiny import TinyWorker
from tests.support.builders import BOSS, LIMITS, tick_as

PATH = "/v1/chat/completions"
LATE = "its first token would come 5300 ms after it could run, which is too late"
WAITING = CHAT | {"fleet": {"wait": 0}}
"""Its job stays in the queue."""


def told(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def comes_back(answer: httpx.Response) -> bool:
    """Whether it says when, in both of the forms that OpenAI's clients read."""
    seconds, milliseconds = int(answer.headers["retry-after"]), int(answer.headers["retry-after-ms"])
    return 0 < seconds <= 60 and 0 < milliseconds <= 60_000


@pytest.mark.parametrize("stream", [False, True])
async def test_a_full_queue(front: Served, valkey: Redis, worker: TinyWorker, stream: bool) -> None:
    await run(valkey, tick_as(BOSS, limits={**LIMITS, Priority.HIGH: 2}))
    async with front.http() as http:
        assert told(await http.post(PATH, json=WAITING)) == (504, "wait_timeout")
        refused = await http.post(PATH, json=CHAT | {"stream": stream})
        other = await http.post(PATH, json=WAITING | {"fleet": {"wait": 0, "priority": "low"}})
    assert told(refused) == (503, "queue_full")
    assert refused.json()["error"]["type"] == "server_error"
    assert comes_back(refused)
    assert told(other) == (504, "wait_timeout")


@pytest.mark.parametrize("quotas", [Quotas(jobs=1), Quotas(tokens=10)], ids=["jobs", "tokens"])
async def test_a_tenants_quota(front: Served, valkey: Redis, worker: TinyWorker, quotas: Quotas) -> None:
    await run(valkey, tick_as(BOSS, quotas=quotas))
    async with front.http() as http:
        assert told(await http.post(PATH, json=WAITING | {"max_tokens": 5})) == (504, "wait_timeout")
        refused = await http.post(PATH, json=CHAT)
    assert told(refused) == (429, "rate_limit_exceeded")
    assert comes_back(refused)


@pytest.mark.parametrize(
    ("limits", "kind"),
    [
        (Limits(requests_a_minute=1), "requests"),
        (Limits(tokens_a_minute=1_500), "tokens"),
        (Limits(jobs=1), "jobs"),
        (Limits(bytes=100), "bytes"),
    ],
    ids=["requests", "tokens", "jobs", "bytes"],
)
async def test_a_keys_limits(valkey_url: str, worker: TinyWorker, limits: Limits, kind: str) -> None:
    ring = Ring({"key": Grant("acme", "k1", limits=limits), "other": Grant("acme", "k2", limits=limits)})
    async with serving(valkey_url, ring=ring) as served, served.http("key") as http, served.http("other") as other:
        body = WAITING | {"max_tokens": 1_000}
        assert told(await http.post(PATH, json=body)) == (504, "wait_timeout")
        refused = await http.post(PATH, json=body)
        assert told(await other.post(PATH, json=body)) == (504, "wait_timeout")
    assert told(refused) == (429, "rate_limit_exceeded")
    assert refused.json()["error"]["type"] == kind
    assert comes_back(refused)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_deadline_that_can_not_be_met_tells_the_predicted_wait(
    front: Served, worker: TinyWorker, stream: bool
) -> None:
    refusal = Outcome(state=State.FAILED, error=ErrorInfo(code="unreachable", message=LATE, wait_ms=5_300))
    async with front.http() as http:
        asked = asyncio.create_task(http.post(PATH, json=CHAT | {"stream": stream, "fleet": {"deadline": 5}}))
        await (await taken(worker)).end(refusal)
        refused = await asked
    assert told(refused) == (503, "unreachable")
    assert "5300 ms" in refused.json()["error"]["message"]
    assert (refused.headers["retry-after"], refused.headers["retry-after-ms"]) == ("6", "5300")


def test_a_long_predicted_wait_is_told_as_clients_follow_it() -> None:
    error = ErrorInfo(code="unreachable", message="", wait_ms=3_600_000)
    failure = failure_of_end(Outcome(state=State.FAILED, error=error))
    assert failure
    assert failure.headers["retry-after"] == "60"


async def test_the_same_id_with_another_body(front: Served, worker: TinyWorker) -> None:
    named = {"fleet": {"id": "mine", "wait": 0}}
    async with front.http() as http:
        assert told(await http.post(PATH, json=CHAT | named)) == (504, "wait_timeout")
        refused = await http.post(PATH, json=CHAT | named | {"max_tokens": 4})
    assert told(refused) == (409, "conflicting_id")
    assert refused.headers["x-should-retry"] == "false"


async def test_another_tenants_job_is_404_and_never_403(valkey_url: str, worker: TinyWorker) -> None:
    ring = Ring({"ours": Grant("ours", ""), "theirs": Grant("theirs", "")})
    quick = GatewayOptions(wait_s=0)
    async with serving(valkey_url, ring=ring, options=quick) as served, served.http("ours") as ours:
        path = f"/v1/requests/{(await ours.post(PATH, json=CHAT)).headers['x-request-id']}"
        async with served.http("theirs") as theirs:
            for method, more in (("GET", ""), ("GET", "/stream"), ("POST", "/cancel")):
                foreign, absent = [await theirs.request(method, one + more) for one in (path, f"{path}x")]
                assert told(foreign) == (404, "unknown_job")
                assert foreign.content == absent.content
        assert (await ours.get(path)).json()["status"] == "queued"
