"""The scheduler as a process of its own: event loop, logs, signals."""

import asyncio
import signal
from collections.abc import Collection
from contextlib import suppress
from functools import partial

import uvloop
from prometheus_client import CollectorRegistry

from protocol import collector, failpoints, log
from protocol.settings import Settings
from protocol.states import Priority
from scheduler.metrics import Metrics
from scheduler.record import Recording
from scheduler.service import run_scheduler
from telemetry import tracing
from telemetry.serve import served


def main(settings: Settings, pools: Collection[str] | None = None, recording: Recording | None = None) -> None:
    """Run until SIGTERM or SIGINT; returns after a clean stop. Closes the recording.

    Raises:
        SetupError: the Redis URL or the policy is wrong, or the metrics' port is taken.
        StoreUnavailable: Redis did not answer at the start.
    """
    log.configure(settings.log_level, settings.log_format)
    failpoints.arm()
    tracing.start("scheduler")
    try:
        with served("scheduler", settings.metrics_port, settings.metrics_host, partial(_metrics, settings)) as metrics:
            uvloop.run(_until_told(settings, pools, recording, metrics))
    finally:
        if recording:
            recording.close()


def _metrics(settings: Settings, registry: CollectorRegistry) -> Metrics:
    targets_s = (settings.target_high_s, settings.target_medium_s, settings.target_low_s)
    return Metrics(registry, settings.policy, dict(zip(Priority, targets_s, strict=True)))


async def _until_told(
    settings: Settings, pools: Collection[str] | None, recording: Recording | None, metrics: Metrics | None
) -> None:
    running = run_scheduler(settings, redis_url=settings.store_url, pools=pools, recording=recording, metrics=metrics)
    service = asyncio.ensure_future(running)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.cancel)
    collector.settle()
    with suppress(asyncio.CancelledError):
        await service
