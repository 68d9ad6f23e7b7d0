"""The GPUs under the names that NVIDIA's DCGM exporter gives them, so that its dashboards fit. Read at each scrape."""

from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from worker.device import VISIBLE, load_nvml

MIB = 2**20
LABELS = ("gpu", "UUID")
Read = Callable[[ModuleType, Any], float]
FIGURES: tuple[tuple[str, str, Read], ...] = (
    ("DCGM_FI_DEV_GPU_UTIL", "GPU utilisation (in %).", lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
    (
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        "Memory utilisation (in %).",
        lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).memory,
    ),
    ("DCGM_FI_DEV_FB_USED", "Memory in use (in MiB).", lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used / MIB),
    ("DCGM_FI_DEV_FB_FREE", "Free memory (in MiB).", lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).free / MIB),
    (
        "DCGM_FI_DEV_GPU_TEMP",
        "GPU temperature (in C).",
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    ),
    ("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000),
)


class Gpus(Collector):
    """Those that the engine sees, by `CUDA_VISIBLE_DEVICES`; without NVML or a GPU there are none."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._nvml = load_nvml()
        self._gpus = dict(_found(self._nvml, environment.get(VISIBLE))) if self._nvml else {}

    def collect(self) -> Iterator[Metric]:
        """Each figure of each GPU that tells it."""
        for name, meaning, read in FIGURES:
            family = GaugeMetricFamily(name, meaning, labels=LABELS)
            for labels, gpu in self._gpus.items():
                if (value := self._told(read, gpu)) is not None:
                    family.add_metric(labels, value)
            yield family

    def _told(self, read: Read, gpu: object) -> float | None:
        nvml = self._nvml
        if nvml is None:
            return None
        try:
            return float(read(nvml, gpu))
        except nvml.NVMLError:
            return None


def _found(nvml: ModuleType, visible: str | None) -> Iterator[tuple[tuple[str, str], object]]:
    """(index, UUID) and NVML's handle of each."""
    listed = range(nvml.nvmlDeviceGetCount()) if visible is None else filter(None, map(str.strip, visible.split(",")))
    for one in map(str, listed):
        find = nvml.nvmlDeviceGetHandleByIndex if one.isdecimal() else nvml.nvmlDeviceGetHandleByUUID
        try:
            gpu = find(int(one) if one.isdecimal() else one)
            yield (str(nvml.nvmlDeviceGetIndex(gpu)), str(nvml.nvmlDeviceGetUUID(gpu))), gpu
        except nvml.NVMLError:
            # As CUDA does: what follows a wrong name is not seen.
            return
