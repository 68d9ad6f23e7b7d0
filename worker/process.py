"""A worker as a process of its own: event loop, signals, exit code."""

import asyncio
import os
import signal

import uvloop
from prometheus_client import CollectorRegistry

from protocol import collector, failpoints
from protocol.log import get_logger
from protocol.settings import Settings
from telemetry import tracing
from telemetry.serve import served
from worker.gpus import Gpus
from worker.life import default_label
from worker.metrics import Metrics
from worker.options import WorkerOptions
from worker.service import run_worker
from worker.session import Ending
from worker.stop import StopSignals

STOPPED_AT_ONCE = 130
"""The exit code after a second signal, as for a command that was interrupted."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main(settings: Settings, options: WorkerOptions) -> int:
    """Work until SIGTERM or SIGINT, once to drain, twice to stop at once; the exit code.

    Raises:
        FleetError: as `run_worker` says; or the metrics' port is taken.
    """
    failpoints.arm()
    tracing.start("worker")
    with served("worker", settings.metrics_port, settings.metrics_host, lambda own: _metrics(own, options)) as metrics:
        ending = uvloop.run(_run(settings, options, metrics))
    return STOPPED_AT_ONCE if ending is Ending.STOPPED else 0


def _metrics(registry: CollectorRegistry, options: WorkerOptions) -> Metrics:
    registry.register(Gpus(os.environ))
    return Metrics(registry, options.place(), options.label or default_label())


async def _run(settings: Settings, options: WorkerOptions, metrics: Metrics | None) -> Ending:
    loop, stop, log = asyncio.get_running_loop(), StopSignals(), get_logger("worker")

    def on_signal(number: signal.Signals) -> None:
        stop.signal()
        log.info("signal_received", name=number.name, action="stop" if stop.now.is_set() else "drain")

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    collector.settle()
    return await run_worker(settings, options, redis_url=settings.store_url, stop=stop, metrics=metrics)
