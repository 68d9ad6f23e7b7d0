"""The scheduler as a process of its own: event loop, logs, signals."""

import asyncio
import signal
from collections.abc import Collection
from contextlib import suppress

import uvloop

from protocol import log
from protocol.settings import Settings
from scheduler.service import run_scheduler


def main(settings: Settings, pools: Collection[str] | None = None) -> None:
    """Run until SIGTERM or SIGINT; returns after a clean stop.

    Raises:
        SetupError: the Redis URL or the policy is wrong.
        StoreUnavailable: Redis did not answer at the start.
    """
    log.configure(settings.log_level, settings.log_format)
    uvloop.run(_until_told(settings, pools))


async def _until_told(settings: Settings, pools: Collection[str] | None) -> None:
    service = asyncio.ensure_future(run_scheduler(settings, redis_url=settings.redis_url, pools=pools))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.cancel)
    with suppress(asyncio.CancelledError):
        await service
