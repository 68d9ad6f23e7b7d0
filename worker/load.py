"""The load report: what the engine does, what is on its way to it, and how full the memory is."""

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from protocol.load_score import load_score
from protocol.messages import LoadReport
from worker.device import DeviceFigures, DeviceMeter
from worker.engine.base import Capacity, Engine, EngineLoad

ENGINE_ANSWER_S = 2.0
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True)
class Fresh:
    """Jobs that are taken and not on the engine yet."""

    count: int = 0
    prompt_tokens: int = 0


def report_of(
    load: EngineLoad, fresh: Fresh, capacity: Capacity, memory: float, device: DeviceFigures | None, taken: int
) -> LoadReport:
    """Put the figures together.

    Args:
        load: the engine's own.
        fresh: added to them, so that no job is missing between inbox and engine.
        capacity: what the engine can hold.
        memory: resident size over its limit; a device's own memory takes its place.
        device: None where there is none.
        taken: the highest attempt whose work is contained.
    """
    device, slots = device or DeviceFigures(memory), max(1, capacity.slots)
    total = load.running + load.waiting + fresh.count
    running = min(load.running + fresh.count, slots)
    kv = min(1.0, load.kv_used_tokens / capacity.kv_tokens) if capacity.kv_tokens else 0.0
    return LoadReport(
        load_score=load_score(device.memory, running, slots, kv),
        memory=device.memory,
        running=running,
        waiting=total - running,
        capacity=slots,
        pending_prefill_tokens=load.pending_prefill_tokens + fresh.prompt_tokens,
        kv_used_tokens=load.kv_used_tokens,
        kv_total_tokens=capacity.kv_tokens,
        block_tokens=capacity.block_tokens,
        prompt_tokens=load.prompt_tokens,
        generated_tokens=load.generated_tokens,
        prefix_query_tokens=load.prefix_query_tokens,
        prefix_hit_tokens=load.prefix_hit_tokens,
        preemptions=load.preemptions,
        taken=taken,
        device_utilisation=device.utilisation,
        device_temperature_c=device.temperature_c,
        device_power_w=device.power_w,
    )


class LoadMeter:
    """Asks engine and device."""

    def __init__(self, engine: Engine, device: DeviceMeter | None, memory_limit_bytes: int) -> None:
        self._engine, self._device, self._memory_limit_bytes = engine, device, memory_limit_bytes
        self._last = EngineLoad()

    async def read(self, fresh: Fresh, capacity: Capacity, taken: int) -> LoadReport:
        """The report of this moment; an engine that does not answer keeps its last figures."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ENGINE_ANSWER_S):
                self._last = await self._engine.load()
        # NVML can take milliseconds: not on the event loop.
        device = await asyncio.to_thread(self._device.read) if self._device else None
        memory = min(1.0, self._last.resident_bytes / self._memory_limit_bytes)
        return report_of(self._last, fresh, capacity, memory, device, taken)


def memory_limit_bytes() -> int:
    """What this process and its engine may use at most: the machine's memory, or its container's part of it."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        return min(machine, int(_CGROUP_LIMIT.read_text()))
    return machine
