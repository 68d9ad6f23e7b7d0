"""The example page in a real browser: an answer is neither doubled nor cut short by what happens on its way."""

from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Page, Request

from producer.fleet import Fleet
from protocol.handle import Handle
from protocol.states import State
from protocol.wire import dumps, loads
from tests.browser.conftest import Backend
from tests.support.waiting import eventually
from worker.engine.sim.text import natural_tokens, seed_of

pytestmark = pytest.mark.browser
SHOWN = "document.querySelector('#answer').textContent"
LONGEST_S = 60.0


def question() -> str:
    """One with a long answer."""
    asked = (f"Tell me of the sea, part {number}." for number in range(1_000))
    return next(
        one for one in asked if natural_tokens(seed_of(dumps([[{"role": "user", "content": one}], None]))) > 200
    )


async def ask(page: Page, backend: Backend) -> Handle:
    """Ask as a person would, and wait until a part of the answer is there."""
    await page.goto(backend.url)
    await page.get_by_label("Your question").fill(question())
    await page.get_by_role("button", name="Ask").click()
    await until_shown(page, 100)
    return Handle.parse(loads(await page.evaluate("sessionStorage.getItem('seen')"))["id"])


async def until_shown(page: Page, characters: int) -> None:
    await page.wait_for_function(f"{SHOWN}.length > {characters}")


async def check_whole(page: Page, fleet: Fleet, handle: Handle) -> None:
    """The page ends up with the job's text."""
    await page.get_by_role("status").get_by_text("completed").wait_for()
    outcome = await fleet.result(handle, LONGEST_S)
    assert len(outcome.text) > 500
    assert await page.evaluate(SHOWN) == outcome.text


async def runs(fleet: Fleet, handle: Handle) -> bool:
    return (await fleet.job(handle)).record.state is State.RUNNING


async def test_a_reload_in_mid_stream_goes_on_with_what_was_shown(page: Page, backend: Backend, fleet: Fleet) -> None:
    handle = await ask(page, backend)
    before = await page.evaluate(SHOWN)
    async with page.expect_request(lambda request: str(handle) in request.url) as followed:
        await page.reload()
    after = await page.evaluate(SHOWN)
    assert await runs(fleet, handle)
    assert after.startswith(before)
    assert place_of(await followed.value)
    await until_shown(page, len(after) + 100)
    assert await runs(fleet, handle)
    await page.reload()
    await check_whole(page, fleet, handle)
    # An answer that has ended is kept too, and nothing is asked for again.
    await page.reload()
    await check_whole(page, fleet, handle)


def place_of(request: Request) -> list[str]:
    """After which event a page asks to go on."""
    return parse_qs(urlsplit(request.url).query).get("after", [])


async def test_a_backend_that_dies_and_comes_back_goes_on_where_the_page_stands(
    page: Page, backend: Backend, fleet: Fleet
) -> None:
    handle = await ask(page, backend)
    backend.kill()
    assert await runs(fleet, handle)
    # The page's address of the stream is still that of its beginning: only the header tells where it stands.
    await backend.start()
    await check_whole(page, fleet, handle)


async def test_an_answer_that_is_no_more_is_told(page: Page, backend: Backend) -> None:
    await page.goto(backend.url)
    seen = dumps({"id": "m.0.web.gone", "text": "once", "after": "1-1", "state": "running"}).decode()
    await page.evaluate(f"sessionStorage.setItem('seen', {dumps(seen).decode()})")
    await page.reload()
    await page.get_by_role("status").get_by_text("gone").wait_for()
    assert await page.evaluate(SHOWN) == "once"


async def test_a_person_may_stop_the_answer(page: Page, backend: Backend, fleet: Fleet) -> None:
    handle = await ask(page, backend)
    await page.get_by_role("button", name="Stop").click()
    await page.get_by_role("status").get_by_text("cancelled").wait_for()

    async def cancelled() -> bool:
        return (await fleet.job(handle)).record.state is State.CANCELLED

    await eventually(cancelled)
    assert not await page.get_by_role("button", name="Stop").is_visible()
