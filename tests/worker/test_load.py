"""The load report's arithmetic, the device's figures, and small names."""

from types import ModuleType, SimpleNamespace

import pytest

from tests.support.waiting import FakeClock
from tests.worker.stage import PuppetEngine
from worker.device import DeviceFigures, DeviceMeter, first_visible, open_device
from worker.engine.base import Capacity, EngineLoad
from worker.figures import Figures
from worker.load import DEVICE_S, LoadMeter, memory_limit_bytes, report_of
from worker.pool_name import pool_of

CAPACITY = Capacity(slots=4, kv_tokens=1_000)


def test_the_score_is_the_weighted_sum() -> None:
    load = EngineLoad(running=2, waiting=0, kv_used_tokens=500)
    report = report_of(load, Figures(taken=7), CAPACITY, 0.5, None)
    assert report.load_score == pytest.approx(0.4 * 0.5 + 0.3 * 0.5 + 0.3 * 0.5)
    assert (report.running, report.waiting, report.taken) == (2, 0, 7)
    assert (report.memory, report.kv) == (0.5, 0.5)


def test_what_is_on_its_way_to_the_engine_is_counted() -> None:
    report = report_of(EngineLoad(running=3, waiting=0), Figures(fresh=2), CAPACITY, 0.0, None)
    assert (report.running, report.waiting) == (4, 1)


def test_own_figures_stand_in_the_report() -> None:
    own = Figures(prefilling=2, pending_prefill_tokens=30, slow_share=0.5, firsts=((7, 80),), taken=8)
    report = report_of(EngineLoad(), own, Capacity(4, step_tokens=2048), 0.0, None)
    assert (report.prefilling, report.pending_prefill_tokens, report.step_tokens) == (2, 30, 2048)
    assert (report.slow_share, report.firsts, report.taken) == (0.5, ((7, 80),), 8)


def test_an_engine_that_refuses_counts_as_full() -> None:
    report = report_of(EngineLoad(running=1), Figures(), CAPACITY, 0.5, None, refusing=True)
    assert report.load_score == pytest.approx(0.4 * 0.5 + 0.3)
    assert (report.running, report.refusing) == (1, True)


def test_shares_stay_within_bounds() -> None:
    load = EngineLoad(running=99, kv_used_tokens=9_999)
    assert report_of(load, Figures(), CAPACITY, 1.0, None).load_score == pytest.approx(1.0)
    assert report_of(load, Figures(), Capacity(slots=0), 0.0, None).capacity == 1


def test_a_device_s_memory_takes_the_place_of_resident_memory() -> None:
    device = DeviceFigures(0.25, utilisation=0.9, temperature_c=60.0, power_w=300.0)
    report = report_of(EngineLoad(), Figures(), CAPACITY, 0.75, device)
    assert (report.memory, report.device_utilisation, report.device_power_w) == (0.25, 0.9, 300.0)


def test_the_memory_limit_is_a_real_amount() -> None:
    assert memory_limit_bytes() > 64 * 2**20


class Missing(Exception):
    pass


def nvml(**told: object) -> ModuleType:
    """Stands in for NVML's bindings: the machines that run the tests have no device."""

    def refuse(*_: object) -> object:
        raise Missing

    names = ("MemoryInfo", "UtilizationRates", "Temperature", "PowerUsage")
    module = ModuleType("pynvml")
    module.__dict__.update({f"nvmlDeviceGet{name}": refuse for name in names})
    module.__dict__.update({"NVMLError": Missing, "NVML_TEMPERATURE_GPU": 0})
    module.__dict__.update({f"nvmlDeviceGet{name}": lambda *_, value=value: value for name, value in told.items()})
    return module


def test_a_device_tells_its_figures() -> None:
    told = {"MemoryInfo": SimpleNamespace(used=30, total=120), "UtilizationRates": SimpleNamespace(gpu=50)}
    meter = DeviceMeter(nvml(**told, Temperature=65, PowerUsage=250_000), object())
    assert meter.read() == DeviceFigures(0.25, 0.5, 65.0, 250.0)


async def test_a_device_is_asked_now_and_then_and_the_jobs_each_time() -> None:
    asked: list[int] = []

    def memory(_: object) -> SimpleNamespace:
        asked.append(len(asked))
        return SimpleNamespace(used=len(asked), total=10)

    library, clock = nvml(), FakeClock()
    library.__dict__["nvmlDeviceGetMemoryInfo"] = memory
    meter = LoadMeter(PuppetEngine(), DeviceMeter(library, object()), 1, clock)
    reports = [await meter.read(Figures(prefilling=count), CAPACITY) for count in (1, 2)]
    assert [(report.memory, report.prefilling) for report in reports] == [(0.1, 1), (0.1, 2)]
    clock.advance(DEVICE_S)
    assert (await meter.read(Figures(), CAPACITY)).memory == 0.2


def test_a_device_that_tells_its_memory_alone_is_enough() -> None:
    assert DeviceMeter(nvml(MemoryInfo=SimpleNamespace(used=1, total=4)), object()).read() == DeviceFigures(0.25)


def test_a_device_that_is_lost_tells_nothing() -> None:
    assert DeviceMeter(nvml(), object()).read() is None


@pytest.mark.parametrize(("listed", "first"), [("2,3", "2"), ("GPU-8a,GPU-9b", "GPU-8a"), ("", "0"), ("0", "0")])
def test_the_first_visible_device_counts(listed: str, first: str) -> None:
    assert first_visible(listed) == first


def test_a_device_that_is_not_there_is_none() -> None:
    assert open_device({"CUDA_VISIBLE_DEVICES": "GPU-of-nobody"}) is None


@pytest.mark.parametrize(
    ("model", "pool"),
    [
        ("smollm2-135m", "smollm2-135m"),
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama-llama-3-1-8b-instruct"),
        ("///", "model"),
    ],
)
def test_a_model_names_its_pool(model: str, pool: str) -> None:
    assert pool_of(model) == pool


def test_long_names_that_begin_alike_get_pools_of_their_own() -> None:
    one, other = pool_of("m" * 100 + "1"), pool_of("m" * 100 + "2")
    assert one != other
    assert len(one) == len(other) == 64
