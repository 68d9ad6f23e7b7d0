"""Every query of the dashboards, and every alert, is asked of a real Prometheus that scrapes a real fleet."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from bench.dashboards.gpus import GPUS
from bench.dashboards.spec import DASHBOARDS
from producer.keys import create_key
from protocol.limits import Limits
from telemetry.serve import serving
from tests.observe.conftest import MODEL, Watched
from tests.observe.prometheus import Prometheus, prometheus
from tests.observe.test_metrics import batch_input, streams
from tests.support.waiting import eventually
from tests.worker.test_metrics import nvml
from worker import gpus

CHOSEN = {"$__rate_interval": "2m", "$pool": ".*", "$worker": ".*"}
QUIET = ("histogram_quantile", " / ")
"""Where nothing happened in the window, these are no numbers."""
OR_ZERO = " or vector(0)"


def as_grafana_asks(expr: str) -> str:
    for name, value in CHOSEN.items():
        expr = expr.replace(name, value)
    return expr


@pytest.fixture
def gpu_port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """What a worker with two GPUs would serve of them."""
    monkeypatch.setattr(gpus, "load_nvml", lambda: nvml(3))
    registry = CollectorRegistry()
    registry.register(gpus.Gpus({"CUDA_VISIBLE_DEVICES": "0,1"}))
    with serving(registry, 0) as port:
        yield port


async def work(watched: Watched, tokens: int) -> None:
    """Some of all that a fleet does."""
    for job in await streams(watched, 4, tokens):
        await job.result(timeout=60)
    batches = watched.fleet.batches
    name = (await batches.submit(batch_input(watched.folder / f"in-{tokens}.jsonl"))).name
    body = {"model": MODEL, "prompt": "over HTTP", "max_tokens": tokens, "ignore_eos": True, "stream": True}
    url = f"http://127.0.0.1:{watched.ports['gateway']}"
    secret, _ = await create_key(watched.fleet, limits=Limits(requests_a_minute=1))
    bearer = {"authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, headers=bearer) as http:
        assert (await http.post("/v1/completions", json=body)).status_code == 200
        assert (await http.post("/v1/completions", json=body)).status_code == 429

    async def ended() -> bool:
        return (await batches.get(name.id)).status.terminal

    await eventually(ended, timeout_s=60)


def told(server: Prometheus, expr: str) -> list[float]:
    # A zero in place of nothing is for people; here it would hide that nothing is there.
    asked = as_grafana_asks(expr).removesuffix(OR_ZERO)
    return server.finite(asked) if any(word in expr for word in QUIET) else server.query(asked)


async def test_each_query_has_data_and_each_rule_can_be_asked(watched: Watched, tmp_path: Path, gpu_port: int) -> None:
    ours = [port for name, port in watched.ports.items() if name != "gateway"]
    jobs = {"tokenfleet": [*ours, gpu_port], "tokenfleet-gateway": [watched.ports["gateway"]]}
    with prometheus(tmp_path, jobs) as server:
        await eventually(server.ready, timeout_s=30)
        await work(watched, 20)
        everything = 'count(up{job=~"tokenfleet.*"} == 1)'
        await eventually(lambda: server.query(everything) == [len(watched.ports) + 1], timeout_s=30)
        # A rate needs two samples of a series, and some come with what they count first.
        await work(watched, 30)
        queries = [
            (board.title, panel.title, query.expr)
            for board in DASHBOARDS
            for panel in board.panels
            for query in panel.queries
        ]
        assert len(queries) > 60
        assert not [expr for *_, expr in queries if "vector(" in expr.removesuffix(OR_ZERO)]

        def all_told() -> bool:
            empty = [about for about in queries if not told(server, about[2])]
            assert not empty, empty
            return True

        await eventually(all_told, timeout_s=60)
        temperature = next(panel for panel in GPUS.panels if panel.title == "Temperature").queries[0].expr
        assert sorted(server.query(temperature)) == [60, 61]
        # Nothing is wrong with this fleet, so nobody is woken; and each rule can be asked.
        health = server.rules()
        assert len(health) > 10
        assert set(health.values()) == {"ok"}
        assert server.query('count(ALERTS{alertstate="firing"}) or vector(0)') == [0]
        # What the panel says is what happened.
        requests = 'sum(tokenfleet_worker_attempts_total{end="completed"})'
        ends = 'sum(tokenfleet_jobs_ended_total{state="completed"})'
        await eventually(lambda: server.query(requests) == server.query(ends) == [2 * (4 + 12 + 1)], timeout_s=20)
