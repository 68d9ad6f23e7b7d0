"""The batch runner as a process of its own: event loop, logs, signals."""

import asyncio
import signal
from contextlib import suppress
from importlib.util import find_spec

import uvloop

from producer.batch.store import store_at
from protocol import collector, failpoints, log
from protocol.errors import SetupError
from protocol.settings import Settings
from telemetry import tracing
from telemetry.serve import served
from tokenfleet.runner.metrics import Metrics


def main(settings: Settings, concurrency: int) -> None:
    """Run until SIGTERM or SIGINT; returns once every batch is handed over.

    Raises:
        SetupError: arq is not installed, no store is set, the Redis URL is wrong, or the metrics' port is taken.
        StoreUnavailable: Redis did not answer at the start.
    """
    log.configure(settings.log_level, settings.log_format)
    failpoints.arm()
    tracing.start("batch-runner")
    for package in ("arq", "aiohttp"):
        if find_spec(package) is None:
            raise SetupError(f"the batch runner needs {package}", "Install tokenfleet[batch].")
    store_at(settings.store)
    with served("batch-runner", settings.metrics_port, settings.metrics_host, Metrics) as metrics:
        uvloop.run(_until_told(settings, concurrency, metrics))


async def _until_told(settings: Settings, concurrency: int, metrics: Metrics | None) -> None:
    from tokenfleet.runner.service import run_runner

    service = asyncio.ensure_future(run_runner(settings, store_at(settings.store), concurrency, metrics))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.cancel)
    collector.settle()
    with suppress(asyncio.CancelledError):
        await service
