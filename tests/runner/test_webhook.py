"""The webhook, on a real HTTP server: signed, repeated until it is taken, told once."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from openai import OpenAI
from openai.types.webhooks import BatchCompletedWebhookEvent

from producer.fleet import Fleet
from protocol import batch_reads, reads
from protocol.call import run
from tests.runner.conftest import Runners, ended, requests
from tests.support.servers import free_port
from tests.support.waiting import eventually

SECRET = "whsec_c29tZSBzZWNyZXQgYnl0ZXM="


@dataclass
class Receiver:
    """Answers with the status codes in their order, then with 200."""

    url: str
    codes: list[int] = field(default_factory=list)
    calls: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        self.calls.append((await request.text(), dict(request.headers)))
        code = self.codes.pop(0) if self.codes else 200
        headers = {"Location": f"{self.url}/elsewhere"} if code == 302 else {}
        return web.Response(status=code, headers={"Set-Cookie": f"call-{len(self.calls)}=here"} | headers)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    port = free_port()
    made = Receiver(f"http://localhost:{port}/hook")
    application = web.Application()
    application.router.add_post("/hook", made.take)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield made
    await runner.cleanup()


async def told(fleet: Fleet) -> bool:
    now_ms = await run(fleet.redis, reads.store_time_ms())
    return not await run(fleet.redis, batch_reads.untold_batches(now_ms + 60_000))


async def test_it_is_signed_and_repeated_until_it_is_taken(
    fleet: Fleet, runners: Runners, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.codes = [500, 302, 503]
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    secret_file = str(tmp_path / "secret")
    for _ in range(2):
        runners.start(TOKENFLEET_WEBHOOK_URL=receiver.url, TOKENFLEET_WEBHOOK_SECRET_FILE=secret_file)
    name = (await fleet.batches.submit(requests(tmp_path / "in.jsonl", 2, tokens=4))).name
    await ended(fleet, name)
    await eventually(lambda: told(fleet), timeout_s=20)
    assert len(receiver.calls) == 4, "three that failed, and one"
    for body, headers in receiver.calls:
        event = OpenAI(api_key="none").webhooks.unwrap(body, headers, secret=SECRET)
        assert isinstance(event, BatchCompletedWebhookEvent)
        assert event.data.id == name.id
        assert "Cookie" not in headers, "one more a call, they would be too long for any server one day"
    assert len({headers["webhook-id"] for _, headers in receiver.calls}) == 1


async def test_what_was_not_told_before_a_crash_is_told_after_it(
    fleet: Fleet, runners: Runners, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.codes = [500] * 3
    settings = {"TOKENFLEET_WEBHOOK_URL": receiver.url, "TOKENFLEET_WEBHOOK_SECRET": SECRET}
    first = runners.start(**settings, TOKENFLEET_WEBHOOK_RETRY_S="1")
    name = (await fleet.batches.submit(requests(tmp_path / "in.jsonl", 2, tokens=4))).name
    await eventually(lambda: bool(receiver.calls), timeout_s=20)
    first.kill()
    receiver.codes = []
    runners.start(**settings)
    await eventually(lambda: told(fleet), timeout_s=30)
    assert name.id in receiver.calls[-1][0]


async def test_each_end_has_its_type(fleet: Fleet, runners: Runners, receiver: Receiver, tmp_path: Path) -> None:
    runners.start(TOKENFLEET_WEBHOOK_URL=receiver.url)
    bad = tmp_path / "bad.jsonl"
    bad.write_text("no json\n")
    await fleet.batches.submit(bad)
    slow = requests(tmp_path / "in.jsonl", 4, tokens=2_000)
    await fleet.batches.cancel((await fleet.batches.submit(slow)).name.id)
    await fleet.batches.submit(slow, deadline=2)
    quiet = (await fleet.batches.submit(bad, notify=False)).name
    await eventually(lambda: len(receiver.calls) == 3, timeout_s=30)
    await ended(fleet, quiet)
    await eventually(lambda: told(fleet), timeout_s=20)
    types = sorted(body.partition('"type":"')[2].partition('"')[0] for body, _ in receiver.calls)
    assert types == ["batch.cancelled", "batch.expired", "batch.failed"]
    assert all(quiet.id not in body for body, _ in receiver.calls)
