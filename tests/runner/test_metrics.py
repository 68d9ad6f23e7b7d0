"""What a batch runner tells Prometheus, by its registry; and of the fleet's batches, by processes."""

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from producer.batch.progress import Progress
from producer.batch.tally import FinishedRow
from producer.fleet import Fleet
from protocol import store
from protocol.batches import BatchStatus
from tests.observe.scraping import Scrape
from tests.runner.conftest import Runners, requests
from tests.support.servers import Server, free_port
from tests.support.waiting import eventually
from tokenfleet.runner import service
from tokenfleet.runner.metrics import Metrics

NEWS = Progress(
    batch_id="b",
    rows_total=10,
    rows_in=5,
    rows_out=3,
    rows_failed=1,
    rows_in_redis=2,
    rows_deduped=1,
    tokens_in=1,
    tokens_out=1,
    tokens_cached=0,
    seconds=1.0,
    rows_per_s=1.5,
    tokens_per_s=1.0,
    left_s=None,
    late_s=None,
)


def test_batches_that_are_owned_add_up_and_leave() -> None:
    registry = CollectorRegistry()
    metrics, value = Metrics(registry), registry.get_sample_value
    gauges = ("batches_owned", "batch_rows_left", "batch_rows_in_redis", "batch_rows_per_second", "batches_late")

    def told() -> list[float | None]:
        return [value(f"tokenfleet_{name}") for name in gauges]

    with metrics.batch() as one, metrics.batch() as other, metrics.batch():
        # Another runner's batch is not taken, and not owned.
        assert told() == [0, 0, 0, 0, 0]
        one.on_take()
        other.on_take()
        assert told() == [2, 0, 0, 0, 0]
        one.on_progress(NEWS)
        other.on_progress(replace(NEWS, rows_out=9, late_s=4.0))
        assert told() == [2, 8, 4, 3.0, 1]
    assert told() == [0, 0, 0, 0, 0]
    assert value("tokenfleet_batch_takes_total") == 2


def test_rows_are_counted_once_and_a_copied_answer_costs_no_tokens() -> None:
    registry = CollectorRegistry()
    metrics, value = Metrics(registry), registry.get_sample_value
    with metrics.batch() as watch:
        for row in (
            FinishedRow(1, failed=False, tokens_in=5, tokens_out=7, total_ms=2_000),
            FinishedRow(2, failed=True),
            FinishedRow(3, failed=False, tokens_in=5, tokens_out=7, total_ms=2_000, deduped=True),
        ):
            watch.on_row(row)
    ends = ("completed", "failed", "deduped")
    assert [value("tokenfleet_batch_rows_total", {"end": end}) for end in ends] == [1, 1, 1]
    assert (value("tokenfleet_batch_prompt_tokens_total"), value("tokenfleet_batch_output_tokens_total")) == (5, 7)
    assert (value("tokenfleet_batch_row_seconds_count"), value("tokenfleet_batch_row_seconds_sum")) == (1, 2.0)


def test_states_are_those_of_the_last_look() -> None:
    registry = CollectorRegistry()
    metrics, value = Metrics(registry), registry.get_sample_value
    metrics.living([BatchStatus.IN_PROGRESS, BatchStatus.IN_PROGRESS, BatchStatus.VALIDATING])
    metrics.living([BatchStatus.IN_PROGRESS])
    metrics.ended(BatchStatus.EXPIRED)
    assert value("tokenfleet_batches", {"state": "in_progress"}) == 1
    assert value("tokenfleet_batches", {"state": "validating"}) == 0
    metrics.living(None)
    assert value("tokenfleet_batches", {"state": "in_progress"}) is None
    metrics.living([])
    assert value("tokenfleet_batches", {"state": "in_progress"}) == 0
    assert value("tokenfleet_batch_ends_total", {"state": "expired"}) == 1


async def test_each_runner_tells_of_a_batch_that_lives(fleet: Fleet, runners: Runners, tmp_path: Path) -> None:
    await fleet.batches.submit(requests(tmp_path / "in.jsonl", 200, tokens=600))
    ports = [free_port(), free_port()]
    for port in ports:
        runners.start(TOKENFLEET_METRICS_PORT=str(port))

    def told() -> bool:
        try:
            return [Scrape(port).sum("tokenfleet_batches") for port in ports] == [1, 1]
        except OSError:
            return False

    await eventually(told, timeout_s=40)


async def test_a_redis_that_is_away_is_asked_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LIVING_S", 0.05)
    registry, redis = CollectorRegistry(), store.connect(server.url)

    def told() -> float | None:
        return registry.get_sample_value("tokenfleet_batches", {"state": "in_progress"})

    async with service.living_told(redis, Metrics(registry)):
        server.kill()
        await eventually(lambda: told() is None)
        server.start()
        await eventually(lambda: told() == 0)
    await redis.aclose()
