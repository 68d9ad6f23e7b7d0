"""What feeds the live page: one reader for all, each viewer told what it may see, and no more than it takes."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from bench.page.synthetic import SyntheticFleet
from producer.dead import SetAside
from producer.gateway.auth import Grant
from producer.gateway.live.history import History, figures_of
from producer.gateway.live.look import Look
from producer.gateway.live.page import FOLDER
from producer.gateway.live.watch import LINGERS, Away, Watch
from producer.overview import Overview
from producer.scope import ALL, Scope
from protocol.errors import StoreUnavailable
from protocol.wire import loads
from tests.gateway.serving import MODEL, Ring, SentEvent, Served, events, serving, taken
from tests.producer.tiny import TinyWorker
from tests.support.waiting import eventually

RING = Ring(
    {
        "acme": Grant("acme", "1"),
        "web": Grant("web", "2"),
        "boss": Grant("ops", "3", operator=True),
    }
)
LONGEST_S = 20.0
"""What should end at once fails after so long in place of hanging."""
Seen = tuple[Overview, Sequence[SetAside]]


@dataclass
class Reader:
    """A small made-up fleet that a test can break; it counts who reads."""

    fleet: SyntheticFleet = field(default_factory=lambda: SyntheticFleet(4, 40))
    reads: int = 0
    error: Exception | None = None

    async def __call__(self) -> Seen:
        self.reads += 1
        if self.error:
            raise self.error
        return await self.fleet.read()


@asynccontextmanager
async def told(served: Served, key: str) -> AsyncGenerator[AsyncGenerator[SentEvent, None], None]:
    """The events that one viewer gets."""
    async with served.http(key) as http, http.stream("GET", "/fleet/events") as answer:
        assert answer.status_code == 200
        async with aclosing(events(answer.aiter_lines())) as stream:
            yield stream


async def next_look(stream: AsyncGenerator[SentEvent, None]) -> dict[str, Any]:
    while (event := await anext(stream)).name != "look":
        pass
    found: dict[str, Any] = loads(event.data)
    return found


# --- one reader for all -------------------------------------------------------------------------------------------


async def test_all_viewers_share_one_reader_which_ends_some_time_after_them() -> None:
    reader = Reader()
    watch = Watch(reader, every_s=0)
    async with AsyncExitStack() as stack:
        looks = [await stack.enter_async_context(aclosing(watch.looks())) for _ in range(20)]
        for _ in range(3):
            seen = await asyncio.gather(*(anext(one) for one in looks))
            assert len(set(map(id, seen))) == 1
        read = reader.reads
        assert read < 10
    await eventually(lambda: watch._task is None)
    assert read + LINGERS <= reader.reads <= read + LINGERS + 5
    async with aclosing(watch.looks()) as later:
        assert isinstance(await anext(later), Look)


async def test_who_takes_long_gets_the_newest_look_and_none_between() -> None:
    reader = Reader()
    watch = Watch(reader, every_s=0)
    async with aclosing(watch.looks()) as slow:
        first = await anext(slow)
        await eventually(lambda: reader.reads >= 10)
        second = await anext(slow)
    watch.close()
    assert isinstance(first, Look)
    assert isinstance(second, Look)
    assert second.number >= first.number + 8


async def test_a_redis_that_is_away_is_told_and_comes_back() -> None:
    reader = Reader(error=StoreUnavailable("Redis does not answer"))
    watch = Watch(reader, every_s=0)
    async with aclosing(watch.looks()) as looks:
        assert await anext(looks) == Away("Redis does not answer")
        reader.error = None
        while isinstance(await anext(looks), Away):
            pass
    watch.close()


async def test_a_reader_that_fails_ends_the_streams_and_begins_anew_with_the_next_viewer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = Reader(error=ZeroDivisionError())
    watch = Watch(reader, every_s=0)
    assert [look async for look in watch.looks()] == []
    reader.error = None
    async with aclosing(watch.looks()) as looks:
        assert isinstance(await anext(looks), Look)
    watch.close()


async def test_the_series_of_the_last_minutes_are_bounded_and_know_of_lanes_that_came_later() -> None:
    history = History(kept=3)
    for number in range(5):
        history.note(number, {"waiting": number, **({"late": 1} if number == 4 else {})})
    assert history.to_json() == {"times": [2, 3, 4], "series": {"waiting": [2, 3, 4], "late": [None, None, 1]}}


# --- what changed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [ALL, Scope("acme"), Scope("nobody")], ids=["all", "acme", "nobody"])
async def test_what_changed_makes_of_one_look_the_next(scope: Scope) -> None:
    fleet = SyntheticFleet(8, 400)
    looks = []
    for number in range(6):
        overview, set_aside = await fleet.read()
        looks.append(Look(number, overview, set_aside, figures_of(overview)))
    first = looks[0].whole(scope, History())
    # However many come at once, as after a restart, it is written once for all who may see the same.
    assert looks[0].whole(Scope(scope.only), History()) is first
    assert looks[0].whole(Scope("other"), History()) is not first
    shown = jobs_of(loads(first), {})
    # Not each look: who is slow skips some.
    for before, now in ((0, 1), (1, 4), (4, 5)):
        change = looks[now].since(looks[before], scope)
        shown = jobs_of(loads(change), shown)
        assert shown == jobs_of(loads(looks[now].whole(scope, History())), {})
        assert looks[now].since(looks[before], scope) is change
    tenants = {job.split(".")[2] for jobs in shown.values() for job in jobs}
    assert tenants == ({"acme", "default", "web"} if scope is ALL else {scope.only} & {"acme"})


def jobs_of(message: dict[str, Any], before: dict[str, set[str]]) -> dict[str, set[str]]:
    """What the page has of each worker's jobs after this message."""
    workers = [worker for shard in message["shards"] for worker in shard["workers"]]
    return {
        worker["id"]: set(worker["jobs"])
        if "jobs" in worker
        else (before[worker["id"]] - set(worker["gone"])) | set(worker["added"])
        for worker in workers
    }


# --- who may see what ---------------------------------------------------------------------------------------------


@pytest.fixture
async def made_up(valkey_url: str) -> AsyncGenerator[Served, None]:
    """A gateway in front of a small fleet that is made up."""
    async with serving(valkey_url, ring=RING) as served:
        served.gateway.watch = Watch(Reader(), every_s=0.05)
        yield served


@pytest.mark.parametrize(("key", "tenants"), [("acme", {"acme"}), ("boss", {"acme", "default", "web"})])
async def test_a_key_sees_all_figures_and_the_jobs_and_batches_of_its_own(
    made_up: Served, key: str, tenants: set[str]
) -> None:
    async with told(made_up, key) as stream:
        for look in (await next_look(stream), await next_look(stream)):
            workers = [worker for shard in look["shards"] for worker in shard["workers"]]
            jobs = [job for worker in workers for job in worker.get("jobs", []) + worker.get("added", [])]
            assert {job.split(".")[2] for job in jobs} <= tenants
            assert {batch["tenant"] for batch in look["batches"]} == tenants
            assert {job["id"].split(".")[2] for job in look["set_aside"]} == tenants
            assert [worker["held"] for worker in workers] == [10] * 4
            assert look["figures"]["held"] == 40


async def test_without_a_key_there_is_the_page_and_nothing_of_the_fleet(made_up: Served) -> None:
    async with httpx.AsyncClient(base_url=made_up.url, trust_env=False) as http:
        assert (await http.get("/fleet")).status_code == 200
        for path in ("/fleet/events", "/fleet/jobs/m.0.acme.x"):
            refused = await http.get(path)
            assert refused.status_code == 401
            assert refused.json()["error"]["code"] == "invalid_api_key"


async def test_a_key_that_is_revoked_sees_no_further_look(made_up: Served) -> None:
    ring = Ring(dict(RING.grants))
    made_up.gateway.ring = ring
    async with told(made_up, "acme") as stream:
        await next_look(stream)
        del ring.grants["acme"]
        async with asyncio.timeout(LONGEST_S):
            assert [event async for event in stream if event.name != "look"] == []


async def test_a_gateway_that_closes_holds_no_viewer(made_up: Served) -> None:
    async with told(made_up, "acme") as stream:
        await next_look(stream)
        made_up.stop.set()
        async with asyncio.timeout(LONGEST_S):
            async for _ in stream:
                pass
            await made_up.ended.wait()


async def test_the_life_of_a_job_is_for_its_tenant_and_for_operators_its_text_for_its_tenant_alone(
    valkey_url: str, worker: TinyWorker
) -> None:
    async with serving(valkey_url, ring=RING) as served:
        job = await served.gateway.fleet.submit(model=MODEL, prompt="a secret", tenant="acme", stream=True)
        attempt = await taken(worker)
        await attempt.say("quiet")
        await attempt.finish()
        for key, expected in (("acme", 200), ("boss", 200), ("web", 404)):
            async with served.http(key) as http:
                answer = await http.get(f"/fleet/jobs/{job}")
                assert answer.status_code == expected
                assert "secret" not in answer.text
                assert "quiet" not in answer.text
                text = await http.get(f"/v1/requests/{job}/stream")
                assert ("quiet" in text.text) == (key == "acme")
        life = answer_of(await look_at(served, "boss", str(job)))
        assert [life[name] for name in ("state", "tenant", "attempt")] == ["completed", "acme", 1]
        assert 0 < life["submitted_ms"] <= life["assigned_ms"] <= life["started_ms"] <= life["finished_ms"]


async def look_at(served: Served, key: str, job: str) -> httpx.Response:
    async with served.http(key) as http:
        return await http.get(f"/fleet/jobs/{job}")


def answer_of(response: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = response.json()
    return found


async def test_what_is_no_job_is_told_as_elsewhere(made_up: Served) -> None:
    assert (await look_at(made_up, "boss", "nonsense")).status_code == 400
    assert (await look_at(made_up, "boss", "m.0.acme.x")).status_code == 404


async def test_a_real_fleet_is_seen(valkey_url: str, worker: TinyWorker) -> None:
    async with serving(valkey_url) as served:
        waiting = await served.gateway.fleet.submit(model=MODEL, prompt="one", tenant="acme")
        async with told(served, "any") as stream:
            look = await next_look(stream)
            (shard,) = look["shards"]
            assert shard["lanes"]["high"]["depth"] == look["figures"]["waiting"] == 1
            await taken(worker)

            def held(look: dict[str, Any]) -> list[str]:
                (one,) = look["shards"][0]["workers"]
                jobs: list[str] = one.get("jobs", []) + one.get("added", [])
                return jobs

            while not held(look):
                look = await next_look(stream)
            assert held(look) == [str(waiting)]


# --- the page -----------------------------------------------------------------------------------------------------


async def test_each_part_of_the_page_comes_with_a_strict_policy_and_is_sent_once(made_up: Served) -> None:
    async with made_up.http() as http:
        for path in ["/fleet", *(f"/fleet/page/{part.name}" for part in sorted(FOLDER.iterdir()))]:
            answer = await http.get(path)
            assert answer.status_code == 200
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            again = await http.get(path, headers={"if-none-match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("name", "status"), [("nothing.js", 404), ("app.py", 404), ("..%2Fapp.py", 400), ("..%2fapp.py", 400)]
)
async def test_nothing_else_is_served(made_up: Served, name: str, status: int) -> None:
    async with made_up.http() as http:
        assert (await http.get(f"/fleet/page/{name}")).status_code == status


@pytest.mark.parametrize("part", sorted(FOLDER.iterdir()), ids=lambda part: part.name)
def test_the_page_asks_nobody_else_and_writes_no_markup(part: Any) -> None:
    text = part.read_text()
    # The namespace is a name: nobody asks there.
    assert "//" not in text.replace("// ", "").replace("http://www.w3.org/2000/svg", "")
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "localStorage", "style="):
        assert word not in text
