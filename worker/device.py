"""The GPU as NVML sees it: memory, utilisation, temperature, power."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """Shares in [0, 1], Celsius, watts; None where the device does not tell."""

    memory: float
    utilisation: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None


class DeviceMeter:
    """Reads one device; the calls block for up to some milliseconds."""

    def __init__(self, nvml: ModuleType, device: object) -> None:
        """Take the module `pynvml` and its handle of the device."""
        self._nvml, self._device = nvml, device

    def read(self) -> DeviceFigures | None:
        """The figures of this moment; None when the device does not answer."""
        nvml, device = self._nvml, self._device
        memory = self._told(lambda: _share(nvml.nvmlDeviceGetMemoryInfo(device)))
        if memory is None:
            return None
        return DeviceFigures(
            memory,
            self._told(lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100),
            self._told(lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)),
            self._told(lambda: nvml.nvmlDeviceGetPowerUsage(device) / 1000),
        )

    def _told(self, read: Callable[[], float]) -> float | None:
        try:
            return float(read())
        except self._nvml.NVMLError:
            return None


def load_nvml() -> ModuleType | None:
    """The module `pynvml`, ready to be asked; None without it, or without a driver."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    module: ModuleType = pynvml
    return module


def open_device(environment: Mapping[str, str]) -> DeviceMeter | None:
    """The first device that the engine sees; None without NVML or a device."""
    nvml = load_nvml()
    if nvml is None:
        return None
    try:
        chosen = first_visible(environment.get(VISIBLE, "0"))
        find = nvml.nvmlDeviceGetHandleByIndex if chosen.isdecimal() else nvml.nvmlDeviceGetHandleByUUID
        return DeviceMeter(nvml, find(int(chosen) if chosen.isdecimal() else chosen))
    except nvml.NVMLError:
        return None


def device_count() -> int:
    """How many devices NVML knows of; 0 without it."""
    nvml = load_nvml()
    if nvml is None:
        return 0
    try:
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError:
        return 0


def first_visible(listed: str) -> str:
    """The first device of a list such as `2,3` or `GPU-8a1f…,GPU-…`."""
    return listed.split(",", maxsplit=1)[0].strip() or "0"


def _share(memory: object) -> float:
    used, total = getattr(memory, "used", 0), getattr(memory, "total", 0)
    return float(min(1.0, used / total)) if total else 0.0
