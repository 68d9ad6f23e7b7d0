"""A real Chromium on a gateway's page, and what it tells of its own work."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import CDPSession, Page, async_playwright

from protocol.errors import SetupError

AXE = Path(__file__).parents[2] / "tests" / "page" / "node_modules" / "axe-core" / "axe.min.js"
WIDE = (1280, 900)
PHONE = (390, 844)
GRAVE = ("serious", "critical")
# Counts looks as they are shown, and what the page's own code took for each.
_LISTEN = """() => {
  window.shown = [];
  document.addEventListener("fleet", ({ detail }) => window.shown.push(detail.ms));
}"""
_SHOWN = """(looks) => new Promise((resolve) => {
  const look = () => {
    if (window.shown.length < looks) return;
    document.removeEventListener("fleet", look);
    resolve(window.shown.splice(0));
  };
  document.addEventListener("fleet", look);
  look();
})"""


def chromium() -> str:
    """Its path.

    Raises:
        SetupError: there is none.
    """
    found = shutil.which("chromium")
    if found is None:
        raise SetupError("there is no chromium on the path", "apt-get install chromium")
    return found


@asynccontextmanager
async def opened(url: str, size: tuple[int, int] = WIDE, *, dark: bool = False) -> AsyncIterator[Page]:
    """The live page of the gateway at `url`. As root, Chromium has no sandbox: it trusts the page."""
    width, height = size
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = await browser.new_page(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        page.set_default_timeout(60_000)
        await page.goto(f"{url}/fleet")
        await page.evaluate(_LISTEN)
        yield page
        await browser.close()


async def shown(page: Page, looks: int) -> list[float]:
    """Wait until so many looks were shown since the last call; the ms that the page's code took for each."""
    took: list[float] = await page.evaluate(_SHOWN, looks)
    return took


async def grave_faults(page: Page) -> list[str]:
    """What axe finds that keeps people out: each rule with the places that break it."""
    await page.evaluate(AXE.read_text(encoding="utf-8"))
    found = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{fault['id']}: {', '.join(str(node['target']) for node in fault['nodes'][:5])}"
        for fault in found["violations"]
        if fault["impact"] in GRAVE
    ]


class Meter:
    """Chromium's own figures of one page."""

    def __init__(self, session: CDPSession) -> None:
        """Ask over `session`."""
        self._session = session

    @classmethod
    async def of(cls, page: Page) -> "Meter":
        """Begin to measure."""
        session = await page.context.new_cdp_session(page)
        # The thread's own time: what others of this machine do meanwhile is none of the page's work.
        await session.send("Performance.enable", {"timeDomain": "threadTicks"})
        return cls(session)

    async def task_s(self) -> float:
        """Seconds that the page's main thread has worked so far: scripts, styles, layout, painting, garbage."""
        return (await self._metrics())["TaskDuration"]

    async def heap_bytes(self) -> float:
        """What the page's objects hold once the garbage is gone."""
        await self._session.send("HeapProfiler.collectGarbage")
        return (await self._metrics())["JSHeapUsedSize"]

    async def nodes(self) -> float:
        """Elements and texts of the page."""
        return (await self._metrics())["Nodes"]

    async def _metrics(self) -> dict[str, float]:
        told: dict[str, Any] = await self._session.send("Performance.getMetrics")
        return {metric["name"]: metric["value"] for metric in told["metrics"]}
