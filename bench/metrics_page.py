"""docs/metrics.md: every metric of every role, from the registries that the roles serve."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric

from producer.gateway.metrics import Metrics as GatewayMetrics
from protocol.errors import QuotaExceeded
from protocol.handle import Shard
from protocol.messages import LoadReport, Outcome
from protocol.states import Priority, State
from protocol.watch import Store, Tally
from scheduler.led import Look
from scheduler.metrics import STEPS
from scheduler.metrics import Metrics as SchedulerMetrics
from scheduler.policy.decision import Decision
from scheduler.read import Snapshot
from tokenfleet.runner.metrics import Metrics as RunnerMetrics
from worker.gpus import FIGURES, LABELS
from worker.metrics import Metrics as WorkerMetrics

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
_HEAD = """# Metrics

Made by `make pages` from the code; a test holds it against what the roles serve.

A scheduler, a worker and a batch runner answer Prometheus at `/metrics` where `--metrics-port` (or
`TOKENFLEET_METRICS_PORT`) names a port, on 127.0.0.1 unless `--metrics-host` says otherwise. Every role also tells what
`prometheus_client` knows of its process (`process_…`, `python_…`). Times are in seconds. No label ever holds a job, a
prompt, a tenant or a key. `worker` is a worker's label: give workers labels that stay (`--label`), or each restart
begins new series.
"""
_NOTES = {
    "Scheduler": """What begins with `tokenfleet_scheduler_` is what this process did; a standby's stands still. All
else is of the shards that this scheduler leads, and only the leader has it. The counters among these are counted in
Redis and go on under the next leader: take `max without (instance)` of their `increase()`.""",
    "Worker": """A time begins with the submission where it says so, by Redis's clock; the engine's part begins with the
start on this worker. Jobs count under the worker that ended them. What an engine does not tell is 0.""",
    "GPUs": """Of a worker's GPUs, by `CUDA_VISIBLE_DEVICES`, under the names of NVIDIA's DCGM exporter, so that its
dashboards fit. Where that exporter runs, drop these.""",
    "Gateway": """At `/metrics` of its own port, without a key, unless `--no-metrics`. `route` is a path with names in
braces, as `/v1/requests/{id}`, `/v1/models/{id:path}`, `/fleet/jobs/{id}` or `/docs` (`other`: no such path); `code`
499: the client left first, 101: a WebSocket. `limit` is what refused: `requests`, `tokens`, `jobs`, `bytes` or
`uploads` of a key, a tenant's `quota` or `storage`, or the `connections` of an address. `kind` of streams: `sse`,
`ws`; of tokens: `prompt`, `completion`. A series begins with the first that it counts.""",
    "Batch runner": """`tokenfleet_batches` is of the whole fleet, and each runner tells the same; all else is of this
runner.""",
}


def families() -> dict[str, list[Metric]]:
    """What each role serves, with all labels, by the page's sections."""
    scheduler, worker, gateway, runner = (CollectorRegistry() for _ in range(4))
    shard = Shard("demo", 0)
    leader = SchedulerMetrics(scheduler, "predictive", dict.fromkeys(Priority, 1)).of(shard)
    leader.lead_taken()
    nothing = dict.fromkeys(Priority, 0)
    leader.round(Snapshot(0, (), more=False, unreadable=(), leases={}, workers={}), Decision(), [0] * len(STEPS))
    tally = Tally(nothing, dict.fromkeys(State, 0), strikes=0, tries=0, dead=0, lost=0, taken=0)
    leader.looked(Look(nothing, 0, tally, Store(0, 0, append_only=False, written=True)))
    WorkerMetrics(worker, shard, "worker-1").reported("active", LoadReport(), 0)
    RunnerMetrics(runner)
    of_a_gateway(gateway)
    registries = {"Scheduler": scheduler, "Worker": worker, "Gateway": gateway, "Batch runner": runner}
    return {title: list(registry.collect()) for title, registry in registries.items()}


def of_a_gateway(registry: CollectorRegistry) -> None:
    """One of each, with all its labels: a gateway's series begin with what they count first."""
    metrics = GatewayMetrics(registry)
    metrics.requests.labels("/v1/models", "200")
    metrics.streams.labels("sse")
    metrics.first_token("/v1/completions", 0)
    metrics.refused(QuotaExceeded(""))
    metrics.ended(Outcome(state=State.COMPLETED, body={"usage": {"prompt_tokens": 1, "completion_tokens": 1}}))


def page() -> str:
    """The whole page."""
    told = {title: map(_row, found) for title, found in families().items()}
    gpus = (_line(name, "gauge", LABELS, meaning) for name, meaning, _ in FIGURES)
    parts = {
        "Scheduler": told["Scheduler"],
        "Worker": told["Worker"],
        "GPUs": gpus,
        "Gateway": told["Gateway"],
        "Batch runner": told["Batch runner"],
    }
    return _HEAD + "".join(map(_section, parts, parts.values()))


def _section(title: str, rows: Iterable[str]) -> str:
    table = ["| metric | kind | labels | what it tells |", "| --- | --- | --- | --- |", *rows]
    return "\n".join([f"\n## {title}\n", _NOTES[title], "", *table, ""])


def _row(metric: Metric) -> str:
    name = metric.name + ("_total" if metric.type == "counter" else "")
    labels = dict.fromkeys(label for sample in metric.samples for label in sample.labels if label != "le")
    kind = metric.type
    if bounds := list(dict.fromkeys(_bounds(metric))):
        kind = f"histogram, {bounds[0]:g} to {bounds[-1]:g}"
    return _line(name, kind, labels, metric.documentation)


def _bounds(metric: Metric) -> Iterator[float]:
    for sample in metric.samples:
        if "le" in sample.labels and sample.labels["le"] != "+Inf":
            yield float(sample.labels["le"])


def _line(name: str, kind: str, labels: Iterable[str], meaning: str) -> str:
    return f"| `{name}` | {kind} | {', '.join(labels)} | {meaning} |"
