"""The live page in a real browser: what it shows of a real fleet under load, and who may look."""

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, Route, expect
from redis.asyncio import Redis

from bench.page.browser import PHONE, grave_faults, opened, shown
from bench.page.served import serving as made_up
from bench.page.synthetic import DEAD, SyntheticFleet
from producer.fleet import Fleet
from producer.gateway.auth import Grant
from producer.gateway.live.watch import Watch
from producer.jobs import Job
from protocol.states import State
from tests.gateway.serving import MODEL, Ring, Served, serving, taken
from tests.page.conftest import needed
from tests.producer.tiny import TinyWorker
from tests.support.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("chromium")]
LONGEST_S = 60.0
JOBS = 120


async def load(fleet: Fleet, count: int) -> list[Job]:
    """More jobs than there are slots, of all priorities."""
    submits = [
        fleet.submit(
            model=MODEL,
            messages=[{"role": "user", "content": f"tell me of the sea, part {number}"}],
            priority=("high", "medium", "low")[number % 3],
            stream=True,
        )
        for number in range(count)
    ]
    return list(await asyncio.gather(*submits))


async def find(page: Page, job: str) -> None:
    await page.get_by_label("Its id").fill(job)
    await page.get_by_role("button", name="Find").click()
    await expect(page.get_by_role("heading", name=job)).to_be_visible()


async def focused(page: Page) -> str:
    text: str = await page.evaluate("document.activeElement.title || document.activeElement.textContent")
    return text


async def test_a_fleet_under_load_and_the_life_and_text_of_a_job(sim: Served, images: Path, axe: None) -> None:
    fleet = sim.gateway.fleet
    await fleet.ready(MODEL, LONGEST_S)
    async with opened(sim.url) as page:
        jobs = await load(fleet, JOBS)
        await expect(page.get_by_role("list").filter(has_text="waiting, the oldest for").first).to_be_visible()
        running = page.locator("#workers summary", has_text="jobs").first
        await running.click()
        await expect(page.locator("#workers .jobs button").first).to_be_visible()
        await shown(page, 3)
        await page.screenshot(path=images / "fleet.png")
        last = str(jobs[-1].handle)
        await find(page, last)
        outcome = await fleet.result(last, LONGEST_S)
        assert outcome.state is State.COMPLETED
        await expect(page.locator("#job .life li").last).to_contain_text("completed")
        # The shard counts attempts, of all its jobs.
        for step in (
            "submitted by default, low priority",
            r"attempt \d+ assigned to worker-",
            "started",
            "first token",
        ):
            await expect(page.locator("#job .life")).to_contain_text(re.compile(step))
        # Where the time went is said in words, not by colours alone.
        await expect(page.locator("#job")).to_contain_text(re.compile(r"queued [\d.]+ m?s .*decode [\d.]+ m?s"))
        await page.get_by_role("button", name="Show its text").click()
        await expect(page.locator("#tokens")).to_have_text(outcome.text, use_inner_text=False)
        assert await grave_faults(page) == []
        await page.locator("#job").screenshot(path=images / "fleet-job.png")


async def test_tokens_are_shown_as_they_come_and_a_job_that_began_anew_loses_them(
    valkey_url: str, valkey: Redis
) -> None:
    worker = TinyWorker(valkey)
    await worker.join()
    async with serving(valkey_url) as served, opened(served.url) as page:
        job = await served.gateway.fleet.submit(model=MODEL, prompt="of the sea", stream=True)
        first = await taken(worker)
        await find(page, str(job.handle))
        await page.get_by_role("button", name="Show its text").click()
        text = page.locator("#tokens")
        await first.say("The tide ")
        await expect(text).to_have_text("The tide", use_inner_text=True)
        await first.say("is out.")
        await expect(text).to_have_text("The tide is out.")
        await first.give_back()
        second = await taken(worker)
        await second.say("The <b>moon</b>")
        # Whatever a model says is text.
        await expect(text).to_have_text("The <b>moon</b>")
        await expect(page.locator("#job .life")).to_contain_text("attempt 1 came back")
        await second.finish()
        await expect(page.locator("#job").get_by_role("status").first).to_have_text("completed")


async def test_a_key_opens_the_page_and_a_revoked_one_closes_it(sim_url: str) -> None:
    ring = Ring({"good": Grant("acme", "1")})
    async with serving(sim_url, ring=ring) as served, opened(served.url) as page:
        field = page.get_by_label("API key")
        await field.fill("wrong")
        await page.get_by_role("button", name="Look").click()
        await expect(page.get_by_text("this API key is not known")).to_be_visible()
        await field.fill("good")
        await page.get_by_role("button", name="Look").click()
        await expect(page.get_by_role("heading", name="Lanes")).to_be_visible()
        assert "good" not in await page.evaluate("JSON.stringify([localStorage, document.cookie, location.href])")
        # A reload keeps it; nobody else on this gateway's pages is asked for it.
        await page.reload()
        await expect(page.get_by_role("heading", name="Lanes")).to_be_visible()
        await find_nothing(page, f"{MODEL}.0.web.x")
        del ring.grants["good"]
        await expect(field).to_be_visible()
        await expect(page.get_by_role("heading", name="Lanes")).to_be_hidden()
        assert await page.evaluate("sessionStorage.length") == 0


async def find_nothing(page: Page, job: str) -> None:
    await page.get_by_label("Its id").fill(job)
    await page.get_by_role("button", name="Find").click()
    await expect(page.get_by_role("alert")).to_contain_text("no such job")


async def test_the_keyboard_is_enough_and_focus_outlasts_updates() -> None:
    fleet = SyntheticFleet(4, 40)
    async with made_up(fleet.read, 0.2) as url, opened(url) as page:
        await shown(page, 1)
        await page.locator("#workers summary").nth(1).focus()
        await page.keyboard.press("Enter")
        await shown(page, 5)
        assert await focused(page) == "10 jobs"
        await page.keyboard.press("Tab")
        job = await focused(page)
        assert job.startswith("chat.1.")
        # However many of them end, focus stays among the jobs of that worker.
        await shown(page, 20)
        assert (await focused(page)).startswith("chat.1.")
        await page.locator("#workers summary").nth(2).focus()
        await shown(page, 3)
        assert await page.locator("#workers details[open]").count() == 1


async def test_of_many_jobs_the_oldest_are_drawn_and_all_are_counted() -> None:
    fleet = SyntheticFleet(2, 100)
    async with made_up(fleet.read, 0.2) as url, opened(url) as page:
        await shown(page, 1)
        await page.get_by_label("Show the jobs of all workers").check()
        # Twenty looks later hardly one of the first is left.
        await shown(page, 20)
        for card in await page.locator("#workers > li").all():
            await expect(card.locator("summary")).to_have_text("50 jobs, 32 shown")
            await expect(card.locator(".jobs button")).to_have_count(32)


async def test_a_screen_reader_hears_loads_charts_batches_and_what_was_set_aside() -> None:
    fleet = SyntheticFleet(4, 40)
    async with made_up(fleet.read, 0.2) as url, opened(url) as page:
        await shown(page, 2)
        await expect(page.get_by_role("meter", name="load")).to_have_count(4)
        loads = [await meter.get_attribute("aria-valuenow") for meter in await page.get_by_role("meter").all()]
        assert all(load is not None and 0 <= int(load) <= 100 for load in loads)
        await expect(
            page.get_by_role("img", name=re.compile("tokens a second in the last five minutes"))
        ).to_be_visible()
        batch = page.get_by_role("row", name="batch_00000000")
        await expect(batch).to_contain_text(re.compile(r"in progress[\d,]+ of 50,0007\d+ min"))
        await expect(batch.get_by_role("meter", name="progress of batch_00000000")).to_be_visible()
        await expect(page.get_by_role("region", name="Set aside").get_by_role("row")).to_have_count(DEAD + 1)
        await expect(page.get_by_role("status").first).to_have_text("live")


async def test_a_gateway_that_comes_back_is_found_again(sim: Served) -> None:
    async with opened(sim.url) as page:
        await shown(page, 1)
        old = sim.gateway.watch
        old.close()
        await expect(page.get_by_text("broken off; as of")).to_be_visible()
        sim.gateway.watch = Watch(old._read)
        await expect(page.get_by_role("status").get_by_text("live", exact=True)).to_be_visible()
        await eventually(lambda: sim.gateway.watch._viewers == 1)


async def test_a_refusal_is_told_with_its_words_and_asked_again() -> None:
    why = "the gateway is closing"

    async def refuse(route: Route) -> None:
        await route.fulfill(status=503, json={"error": {"message": why}})

    async with made_up(SyntheticFleet(4, 40).read, 0.2) as url, opened(url) as page:
        await shown(page, 1)
        await page.route("**/fleet/events", refuse)
        await page.reload()
        status = page.get_by_role("status").first
        await expect(status).to_have_text(why)
        await page.unroute("**/fleet/events")
        await expect(status).to_have_text("live")


@pytest.mark.parametrize("name", ["%", ""])
async def test_an_address_that_names_no_job_shows_the_fleet(name: str) -> None:
    async with made_up(SyntheticFleet(4, 40).read, 0.2) as url, opened(url) as page:
        await page.goto(f"{url}/fleet#job={name}")
        await page.reload()
        await expect(page.get_by_role("heading", name="Lanes")).to_be_visible()
        await expect(page.get_by_role("status").first).to_have_text("live")
        await expect(page.get_by_role("alert")).to_have_text("")


@pytest.mark.parametrize(("name", "size", "dark"), [("fleet-dark", (1280, 900), True), ("fleet-phone", PHONE, False)])
async def test_in_the_dark_and_on_a_phone(
    images: Path, axe: None, name: str, size: tuple[int, int], dark: bool
) -> None:
    fleet = SyntheticFleet(12, 240, step_ms=10_000)
    async with made_up(fleet.read, 0.1) as url, opened(url, size, dark=dark) as page:
        await shown(page, 30)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
        assert await grave_faults(page) == []
        await page.screenshot(path=images / f"{name}.png")


def test_all_that_is_needed_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENFLEET_REQUIRE_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match="no browser"):
        needed(None, "browser")
