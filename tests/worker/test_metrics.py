"""What a worker tells Prometheus, by its registry; and its GPUs."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from protocol.handle import Shard
from protocol.messages import LoadReport, Outcome
from protocol.states import Priority, State
from telemetry.serve import new_registry, page
from worker import gpus
from worker.engine.base import EngineLoad, EngineRequest
from worker.engine.options import EngineOptions
from worker.engine.registry import create_engine
from worker.gpus import Gpus
from worker.metrics import ENDS, Metrics
from worker.verdict import Drop, Finish, GiveBack, Verdict, completed, failed, unfollowed

HIGH = Priority.HIGH
HERE = {"pool": "p", "shard": "1", "worker": "w1"}


class Told:
    """A registry, its metrics, and what it tells."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry, Shard("p", 1), "w1")

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"tokenfleet_{name}", HERE | labels)

    def job(self, name: str) -> float | None:
        return self.value(f"worker_{name}", priority="high")


def test_queue_and_engine_stand_apart_and_together() -> None:
    told = Told()
    told.metrics.started(HIGH, 2.0)
    told.metrics.first_token(HIGH, 2.0, 0.5).observe(0.02)
    usage = {"usage": {"prompt_tokens": 7, "completion_tokens": 2}}
    told.metrics.ended(HIGH, completed(usage), 2.0, 0.75)
    names = ("queue", "first_token", "engine_first_token", "between_tokens", "job", "engine")
    assert [told.job(f"{name}_seconds_sum") for name in names] == [2.0, 2.5, 0.5, 0.02, 2.75, 0.75]
    assert {told.job(f"{name}_seconds_count") for name in names} == {1}
    assert (told.job("prompt_tokens_total"), told.job("output_tokens_total")) == (7, 2)


def test_what_has_just_happened_stands_on_the_page() -> None:
    registry = new_registry()
    metrics = Metrics(registry, Shard("p", 1), "w1")
    for number in (1, 2):
        metrics.started(HIGH, 2.0)
        metrics.ended(HIGH, completed({}), 2.0, 0.75)
        lines = page(registry).decode().splitlines()
        about = 'pool="p",priority="high",shard="1",worker="w1"'
        assert f"tokenfleet_worker_queue_seconds_count{{{about}}} {number}.0" in lines
        assert f'tokenfleet_worker_attempts_total{{end="completed",{about}}} {number}.0' in lines


def test_without_the_submission_s_time_only_the_engine_s_part_counts() -> None:
    told = Told()
    told.metrics.started(HIGH, None)
    told.metrics.first_token(HIGH, None, 0.5)
    told.metrics.ended(HIGH, completed({}), None, 0.75)
    assert [told.job(f"{name}_seconds_count") for name in ("queue", "first_token", "job")] == [0, 0, 0]
    assert [told.job(f"{name}_seconds_count") for name in ("engine_first_token", "engine")] == [1, 1]


@pytest.mark.parametrize(
    "usage", [None, [], {"prompt_tokens": -1, "completion_tokens": "many"}, {"prompt_tokens": 1.5}]
)
def test_what_an_engine_says_of_tokens_may_be_anything(usage: object) -> None:
    told = Told()
    told.metrics.ended(HIGH, completed({"usage": usage}), 1.0, 1.0)
    assert (told.job("prompt_tokens_total"), told.job("output_tokens_total")) == (0, 0)


def test_every_end_has_its_name() -> None:
    told = Told()
    verdicts: list[Verdict] = [
        completed({}),
        failed("x", "x"),
        unfollowed(1),
        GiveBack(),
        GiveBack("try"),
        GiveBack("strike"),
        Drop(),
    ]
    for verdict in verdicts:
        told.metrics.ended(HIGH, verdict, 1.0, 1.0)
    assert [told.value("worker_attempts_total", priority="high", end=end) for end in ENDS] == [1] * len(verdicts)
    # What did not come to its answer has no time of one.
    assert told.job("job_seconds_count") == 1
    expired = Finish(Outcome(state=State.FAILED))
    told.metrics.ended(Priority.LOW, expired, 1.0, 1.0)
    assert told.value("worker_attempts_total", priority="low", end="failed") == 1


def test_the_last_report_is_told() -> None:
    told = Told()
    assert told.value("worker_load_score") is None
    gauges = {
        "load_score": ("load_score", 0.5),
        "memory": ("memory_ratio", 0.25),
        "kv_used_tokens": ("kv_used_tokens", 10),
        "kv_total_tokens": ("kv_capacity_tokens", 25),
        "running": ("running_requests", 3),
        "waiting": ("waiting_requests", 2),
        "capacity": ("capacity_requests", 8),
        "prefilling": ("prefilling_requests", 1),
        "pending_prefill_tokens": ("pending_prefill_tokens", 77),
        "slow_share": ("slow_streams_ratio", 0.75),
    }
    engine: dict[str, Any] = {
        "prompt_tokens": 60,
        "generated_tokens": 70,
        "prefix_query_tokens": 9,
        "prefix_hit_tokens": 4,
        "preemptions": 1,
    }
    load: dict[str, Any] = {member: value for member, (_, value) in gauges.items()}
    told.metrics.reported("active", LoadReport(**load, **engine, state_s={"active": 5.5}), 2)
    told.metrics.lease_lost("reclaimed")
    for name, value in (*gauges.values(), ("kv_ratio", 10 / 25)):
        assert told.value(f"worker_{name}") == value, name
    assert [told.value(f"engine_{name}_total") for name in (*engine, "restarts")] == [60, 70, 9, 4, 1, 2]
    assert [told.value("worker_state", state=state) for state in ("active", "draining")] == [1, 0]
    assert told.value("worker_state_seconds_total", state="active") == 5.5
    assert told.value("worker_leases_lost_total", why="reclaimed") == 1


async def test_the_simulated_engine_counts_what_it_did() -> None:
    engine = create_engine("sim", EngineOptions(slots=4, speed=50))
    await engine.start()
    usages = []
    for name in ("a", "b"):
        body = {"prompt": "the same long prompt " * 20, "max_tokens": 5, "ignore_eos": True}
        request = EngineRequest(name, "/v1/completions", body, HIGH, 100)
        async for chunk in engine.generate(request):
            usages += [chunk["usage"]] if chunk.get("usage") else []
    load = await engine.load()
    prompts = sum(usage["prompt_tokens"] for usage in usages)
    assert (load.generated_tokens, load.prompt_tokens, load.prefix_query_tokens) == (10, prompts, prompts)
    assert 0 < load.prefix_hit_tokens == usages[1]["prompt_tokens_details"]["cached_tokens"]
    await engine.start()
    assert await engine.load() == EngineLoad()
    await engine.close()


class LostError(Exception):
    pass


def nvml(count: int) -> ModuleType:
    """Stands in for NVML's bindings; the last of its devices is lost."""

    def temperature(gpu: int, _: int) -> int:
        if gpu == count - 1:
            raise LostError
        return 60 + gpu

    def by_index(index: int) -> int:
        if index >= count:
            raise LostError
        return index

    module = ModuleType("pynvml")
    module.__dict__.update(
        NVMLError=LostError,
        NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetCount=lambda: count,
        nvmlDeviceGetHandleByIndex=by_index,
        nvmlDeviceGetHandleByUUID=lambda uuid: int(uuid.removeprefix("GPU-")),
        nvmlDeviceGetIndex=lambda gpu: gpu,
        nvmlDeviceGetUUID=lambda gpu: f"GPU-{gpu}",
        nvmlDeviceGetUtilizationRates=lambda gpu: SimpleNamespace(gpu=50 + gpu, memory=5),
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(used=3 * 2**30, free=2**30),
        nvmlDeviceGetTemperature=temperature,
        nvmlDeviceGetPowerUsage=lambda _: 250_000,
    )
    return module


@pytest.mark.parametrize(
    ("visible", "seen"), [(None, [0, 1, 2]), ("2,0", [2, 0]), ("GPU-1", [1]), ("0,9,1", [0]), ("", [])]
)
def test_gpus_are_told_as_dcgm_does(monkeypatch: pytest.MonkeyPatch, visible: str | None, seen: list[int]) -> None:
    monkeypatch.setattr(gpus, "load_nvml", lambda: nvml(3))
    registry = CollectorRegistry()
    registry.register(Gpus({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}))

    def value(gpu: int, name: str) -> float | None:
        return registry.get_sample_value(f"DCGM_FI_DEV_{name}", {"gpu": str(gpu), "UUID": f"GPU-{gpu}"})

    assert [gpu for gpu in range(3) if value(gpu, "GPU_UTIL") is not None] == sorted(seen)
    for gpu in seen:
        figures = [value(gpu, name) for name in ("GPU_UTIL", "FB_USED", "FB_FREE", "POWER_USAGE")]
        assert figures == [50 + gpu, 3072, 1024, 250]
        assert value(gpu, "GPU_TEMP") == (None if gpu == 2 else 60 + gpu)


def test_without_a_gpu_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "load_nvml", lambda: None)
    assert [family.samples for family in Gpus({}).collect()] == [[]] * len(gpus.FIGURES)


def test_an_nvml_that_can_t_count_stops_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nvml(3)

    def count() -> int:
        raise LostError

    module.__dict__["nvmlDeviceGetCount"] = count
    monkeypatch.setattr(gpus, "load_nvml", lambda: module)
    assert [family.samples for family in Gpus({}).collect()] == [[]] * len(gpus.FIGURES)


def test_a_read_that_hangs_keeps_no_further_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "PATIENCE_S", 0.05)
    module, hangs, goes_on = nvml(2), Event(), Event()
    at_rest = module.nvmlDeviceGetPowerUsage

    def power(gpu: int) -> int:
        hangs.set()
        assert goes_on.wait(20)
        return int(at_rest(gpu))

    module.__dict__["nvmlDeviceGetPowerUsage"] = power
    monkeypatch.setattr(gpus, "load_nvml", lambda: module)
    collector = Gpus({})
    with ThreadPoolExecutor(1) as scrapers:
        first = scrapers.submit(collector.collect)
        assert hangs.wait(20)
        assert [family.samples for family in collector.collect()] == [[]] * len(gpus.FIGURES)
        goes_on.set()
        assert all(family.samples for family in first.result(20))
    assert all(family.samples for family in collector.collect())
