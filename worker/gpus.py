"""The GPUs under the names that NVIDIA's DCGM exporter gives them, so that its dashboards fit. Read at each scrape."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from types import ModuleType
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from worker.device import VISIBLE, load_nvml

MIB = 2**20
LABELS = ("gpu", "UUID")
PATIENCE_S = 1.0
"""How long a scrape waits for another one's reads: a driver may hang for ever, and scrapes must not pile up."""
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
        self._reading = Lock()

    def collect(self) -> Sequence[Metric]:
        """Each figure of each GPU that tells it; none while another scrape hangs in the driver."""
        if not self._reading.acquire(timeout=PATIENCE_S):
            return [self._family(*figure, {}) for figure in FIGURES]
        try:
            return [self._family(*figure, self._gpus) for figure in FIGURES]
        finally:
            self._reading.release()

    def _family(self, name: str, meaning: str, read: Read, gpus: Mapping[tuple[str, str], object]) -> Metric:
        family = GaugeMetricFamily(name, meaning, labels=LABELS)
        for labels, gpu in gpus.items():
            if (value := self._told(read, gpu)) is not None:
                family.add_metric(labels, value)
        return family

    def _told(self, read: Read, gpu: object) -> float | None:
        nvml = self._nvml
        if nvml is None:
            return None
        try:
            return float(read(nvml, gpu))
        except nvml.NVMLError:
            return None


def _found(nvml: ModuleType, visible: str | None) -> Iterator[tuple[tuple[str, str], object]]:
    """(index, UUID) and NVML's handle of each; none where NVML tells of none."""
    try:
        names = map(str, range(nvml.nvmlDeviceGetCount())) if visible is None else map(str.strip, visible.split(","))
        for one in filter(None, names):
            find = nvml.nvmlDeviceGetHandleByIndex if one.isdecimal() else nvml.nvmlDeviceGetHandleByUUID
            gpu = find(int(one) if one.isdecimal() else one)
            yield (str(nvml.nvmlDeviceGetIndex(gpu)), str(nvml.nvmlDeviceGetUUID(gpu))), gpu
    except nvml.NVMLError:
        # As CUDA does: what follows a wrong name is not seen.
        return
