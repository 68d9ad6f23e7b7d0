"""The load report: what the engine does, what is on its way to it, and how full the memory is."""

import asyncio
import math
import os
from contextlib import suppress
from pathlib import Path

from protocol.clock import Clock
from protocol.load_score import load_score
from protocol.messages import LoadReport
from worker.device import DeviceFigures, DeviceMeter
from worker.engine.base import Capacity, Engine, EngineLoad
from worker.figures import Figures

ENGINE_ANSWER_S = 2.0
DEVICE_S = 0.2
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def report_of(
    load: EngineLoad,
    own: Figures,
    capacity: Capacity,
    memory: float,
    device: DeviceFigures | None,
    *,
    refusing: bool = False,
) -> LoadReport:
    """Put the figures together.

    Args:
        load: the engine's own.
        own: of the attempts; those that are not on the engine yet are added to its own, so that none is missing.
        capacity: what the engine can hold.
        memory: resident size over its limit; a device's own memory takes its place.
        device: None where there is none.
        refusing: the engine refuses requests for now: as if all its places were taken.
    """
    device, slots = device or DeviceFigures(memory), max(1, capacity.slots)
    total = load.running + load.waiting + own.fresh
    running = min(load.running + own.fresh, slots)
    kv = min(1.0, load.kv_used_tokens / capacity.kv_tokens) if capacity.kv_tokens else 0.0
    return LoadReport(
        load_score=load_score(device.memory, slots if refusing else running, slots, kv),
        refusing=refusing,
        memory=device.memory,
        running=running,
        waiting=total - running,
        capacity=slots,
        pending_prefill_tokens=own.pending_prefill_tokens,
        prefilling=own.prefilling,
        step_tokens=capacity.step_tokens,
        slow_share=own.slow_share,
        firsts=own.firsts,
        kv_used_tokens=load.kv_used_tokens,
        kv_total_tokens=capacity.kv_tokens,
        block_tokens=capacity.block_tokens,
        prompt_tokens=load.prompt_tokens,
        generated_tokens=load.generated_tokens,
        prefix_query_tokens=load.prefix_query_tokens,
        prefix_hit_tokens=load.prefix_hit_tokens,
        preemptions=load.preemptions,
        taken=own.taken,
        device_utilisation=device.utilisation,
        device_temperature_c=device.temperature_c,
        device_power_w=device.power_w,
    )


class LoadMeter:
    """Asks engine and device; the device at most each `DEVICE_S`."""

    def __init__(self, engine: Engine, device: DeviceMeter | None, memory_limit_bytes: int, clock: Clock) -> None:
        self._engine, self._device, self._memory_limit_bytes = engine, device, memory_limit_bytes
        self._clock = clock
        self._last = EngineLoad()
        self._figures: DeviceFigures | None = None
        self._figures_s = -math.inf

    async def read(self, own: Figures, capacity: Capacity, *, refusing: bool = False) -> LoadReport:
        """The report of this moment; an engine that does not answer keeps its last figures."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ENGINE_ANSWER_S):
                self._last = await self._engine.load()
        memory = min(1.0, self._last.resident_bytes / self._memory_limit_bytes)
        device = await self._device_figures()
        return report_of(self._last, own, capacity, memory, device, refusing=refusing)

    async def _device_figures(self) -> DeviceFigures | None:
        now_s = self._clock.monotonic()
        if self._device and now_s - self._figures_s >= DEVICE_S:
            # NVML can take milliseconds: not on the event loop.
            self._figures_s, self._figures = now_s, await asyncio.to_thread(self._device.read)
        return self._figures


def memory_limit_bytes() -> int:
    """What this process and its engine may use at most: the machine's memory, or its container's part of it."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        return min(machine, int(_CGROUP_LIMIT.read_text()))
    return machine
