"""The three dashboards: inference, laid out as vLLM's own users know it; the dispatcher; the GPUs."""

from bench.dashboards.grafana import Dashboard, Panel, Query

EACH = "[$__rate_interval]"
_HERE = 'pool=~"$pool"'
_WORKERS = 'pool=~"$pool",worker=~"$worker"'
_POOL = ("pool", "label_values(tokenfleet_scheduler_leader, pool)")
_WORKER = ("worker", 'label_values(tokenfleet_worker_load_score{pool=~"$pool"}, worker)')
QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


def _rate(metric: str, by: str = "", where: str = _WORKERS) -> str:
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{{{where}}}{EACH}))"


def _fleet(metric: str, by: str = "") -> str:
    """Of what is counted in Redis: each leader after the other tells the same."""
    return f"max by (pool, shard{f', {by}' if by else ''}) (rate({metric}{{{_HERE}}}{EACH}))"


def _quantile(share: float, metric: str, by: str = "", where: str = _WORKERS) -> str:
    return f"histogram_quantile({share}, sum by (le{f', {by}' if by else ''}) (rate({metric}_bucket{{{where}}}{EACH})))"


def _quantiles(title: str, metric: str, means: str = "") -> Panel:
    return Panel(title, "s", [Query(_quantile(share, metric), name) for name, share in QUANTILES], means=means)


_ENDED = 'pool=~"$pool",worker=~"$worker",end=~"completed|failed"'
_FAULTY = 'pool=~"$pool",worker=~"$worker",end=~"failed|try|strike"'
_TOLD = "tokenfleet_worker_"

INFERENCE = Dashboard(
    "tokenfleet-inference",
    "tokenfleet: inference",
    (_POOL, _WORKER),
    (
        (
            "Now",
            [
                Panel("Requests a second", "reqps", [Query(_rate(f"{_TOLD}attempts_total", where=_ENDED))], "stat"),
                Panel(
                    "Prompt tokens a second", "short", [Query(_rate("tokenfleet_engine_prompt_tokens_total"))], "stat"
                ),
                Panel(
                    "Generated tokens a second",
                    "short",
                    [Query(_rate("tokenfleet_engine_generated_tokens_total"))],
                    "stat",
                ),
                Panel("Faults a second", "reqps", [Query(_rate(f"{_TOLD}attempts_total", where=_FAULTY))], "stat"),
                Panel(
                    "Unreachable a second",
                    "reqps",
                    [Query(_rate("tokenfleet_scheduler_refusals_total", where=_HERE))],
                    "stat",
                    "Refused: their first token would have come too late.",
                ),
                Panel(
                    "Engines that serve",
                    "short",
                    [Query(f'sum({_TOLD}state{{{_WORKERS},state="active"}})')],
                    "stat",
                ),
            ],
        ),
        (
            "Requests",
            [
                Panel(
                    "Requests by how they ended", "reqps", [Query(_rate(f"{_TOLD}attempts_total", "end"), "{{end}}")]
                ),
                Panel(
                    "Token throughput",
                    "short",
                    [
                        Query(_rate("tokenfleet_engine_prompt_tokens_total"), "prompt"),
                        Query(_rate("tokenfleet_engine_generated_tokens_total"), "generated"),
                    ],
                ),
                Panel(
                    "Gateway: answers by code",
                    "reqps",
                    [Query(f"sum by (code) (rate(tokenfleet_gateway_requests_total{EACH}))", "{{code}}")],
                ),
            ],
        ),
        (
            "Latency",
            [
                _quantiles("Time to first token", f"{_TOLD}first_token_seconds", "From the submission on."),
                _quantiles("Time between tokens", f"{_TOLD}between_tokens_seconds"),
                _quantiles("End to end", f"{_TOLD}job_seconds", "From the submission to the end, of those completed."),
            ],
        ),
        (
            "Where the time goes",
            [
                _quantiles("Queue", f"{_TOLD}queue_seconds", "From the submission to the start on a worker."),
                _quantiles("Engine to first token", f"{_TOLD}engine_first_token_seconds"),
                _quantiles("Engine to the end", f"{_TOLD}engine_seconds"),
            ],
        ),
        (
            "Engines",
            [
                Panel(
                    "Running and waiting",
                    "short",
                    [
                        Query(f"{_TOLD}running_requests{{{_WORKERS}}}", "{{worker}} running"),
                        Query(f"{_TOLD}waiting_requests{{{_WORKERS}}}", "{{worker}} waiting"),
                    ],
                ),
                Panel("KV cache", "percentunit", [Query(f"{_TOLD}kv_ratio{{{_WORKERS}}}", "{{worker}}")]),
                Panel(
                    "Prefix cache hits",
                    "percentunit",
                    [
                        Query(
                            f"{_rate('tokenfleet_engine_prefix_hit_tokens_total', 'worker')}"
                            f" / {_rate('tokenfleet_engine_prefix_query_tokens_total', 'worker')}",
                            "{{worker}}",
                        )
                    ],
                ),
                Panel(
                    "Preemptions and restarts",
                    "short",
                    [
                        Query(_rate("tokenfleet_engine_preemptions_total", "worker"), "{{worker}} preemptions"),
                        Query(f"tokenfleet_engine_restarts_total{{{_WORKERS}}}", "{{worker}} restarts"),
                    ],
                ),
            ],
        ),
        (
            "Gateway",
            [
                Panel("Open streams", "short", [Query("sum by (kind) (tokenfleet_gateway_open_streams)", "{{kind}}")]),
                Panel(
                    "Refused by limits",
                    "reqps",
                    [Query(f"sum by (limit) (rate(tokenfleet_gateway_limited_total{EACH})) or vector(0)", "{{limit}}")],
                ),
                Panel("Bytes sent", "Bps", [Query(f"sum(rate(tokenfleet_gateway_sent_bytes_total{EACH}))")]),
            ],
        ),
    ),
)

_SCHEDULER = "tokenfleet_scheduler_"

DISPATCHER = Dashboard(
    "tokenfleet-dispatcher",
    "tokenfleet: dispatcher",
    (_POOL,),
    (
        (
            "Now",
            [
                Panel("Shards led", "short", [Query(f"sum({_SCHEDULER}leader{{{_HERE}}})")], "stat"),
                Panel("Waiting", "short", [Query(f"sum(tokenfleet_lane_jobs{{{_HERE}}})")], "stat"),
                Panel("Active workers", "short", [Query(f'sum(tokenfleet_workers{{{_HERE},state="active"}})')], "stat"),
                Panel("Dead letters", "short", [Query(f"sum(tokenfleet_dead_letters{{{_HERE}}})")], "stat"),
            ],
        ),
        (
            "Lanes",
            [
                Panel(
                    "Depth", "short", [Query(f"sum by (priority) (tokenfleet_lane_jobs{{{_HERE}}})", "{{priority}}")]
                ),
                Panel(
                    "Oldest, beside its target",
                    "s",
                    [
                        Query(f"max by (priority) (tokenfleet_lane_oldest_seconds{{{_HERE}}})", "{{priority}}"),
                        Query("max by (priority) (tokenfleet_lane_target_seconds)", "{{priority}}: target"),
                    ],
                ),
                Panel(
                    "p95 of the wait",
                    "s",
                    [Query(_quantile(0.95, f"{_SCHEDULER}wait_seconds", "priority", _HERE), "{{priority}}")],
                ),
                Panel(
                    "Delayed",
                    "short",
                    [Query(f"sum by (priority) (tokenfleet_delayed_jobs{{{_HERE}}})", "{{priority}}")],
                ),
            ],
        ),
        (
            "Decisions",
            [
                Panel(
                    "Assignments a second",
                    "ops",
                    [Query(_rate(f"{_SCHEDULER}assignments_total", "priority", _HERE), "{{priority}}")],
                ),
                Panel(
                    "p95 of a round's steps",
                    "s",
                    [Query(_quantile(0.95, f"{_SCHEDULER}step_seconds", "step", _HERE), "{{step}}")],
                ),
                Panel(
                    "Why windows close",
                    "ops",
                    [Query(_rate(f"{_SCHEDULER}windows_closed_total", "reason", _HERE), "{{reason}}")],
                ),
                Panel(
                    "p95 of a window's jobs",
                    "short",
                    [Query(_quantile(0.95, f"{_SCHEDULER}window_jobs", "priority", _HERE), "{{priority}}")],
                ),
            ],
        ),
        (
            "What goes wrong",
            [
                Panel("Put off", "ops", [Query(_rate(f"{_SCHEDULER}parked_total", "reason", _HERE), "{{reason}}")]),
                Panel("Ends", "ops", [Query(_fleet("tokenfleet_jobs_ended_total", "state"), "{{state}}")]),
                Panel(
                    "Strikes, tries, set aside, taken back",
                    "ops",
                    [
                        Query(_fleet(f"tokenfleet_{name}_total"), name.replace("_", " "))
                        for name in ("strikes", "failed_tries", "set_aside", "leases_lost", "jobs_taken_back")
                    ],
                ),
                Panel(
                    "Retries and rounds that fail",
                    "ops",
                    [
                        Query(_rate(f"{_SCHEDULER}retries_total", where=_HERE), "retries"),
                        Query(_rate(f"{_SCHEDULER}failed_rounds_total", where=_HERE), "failed rounds"),
                    ],
                ),
            ],
        ),
        (
            "Workers and Redis",
            [
                Panel(
                    "Workers by state", "short", [Query(f"sum by (state) (tokenfleet_workers{{{_HERE}}})", "{{state}}")]
                ),
                Panel(
                    "Load score", "short", [Query(f"{_TOLD}load_score{{{_HERE}}}", "{{worker}}")], means="Full at 0.9."
                ),
                Panel(
                    "Redis's memory",
                    "bytes",
                    [
                        Query("max(tokenfleet_redis_memory_bytes)", "used"),
                        Query("max(tokenfleet_redis_memory_limit_bytes)", "maxmemory"),
                    ],
                ),
                Panel(
                    "Append-only file is well",
                    "bool_yes_no",
                    [
                        Query("min(tokenfleet_redis_append_only_ok)", "written"),
                        Query("min(tokenfleet_redis_append_only)", "on"),
                    ],
                ),
            ],
        ),
        (
            "Batches and processes",
            [
                Panel("Batches", "short", [Query("max by (state) (tokenfleet_batches)", "{{state}}")]),
                Panel(
                    "Rows a second",
                    "ops",
                    [Query(f"sum by (end) (rate(tokenfleet_batch_rows_total{EACH}))", "{{end}}")],
                ),
                Panel(
                    "Rows left, batches late",
                    "short",
                    [
                        Query("sum(tokenfleet_batch_rows_left)", "rows left"),
                        Query("sum(tokenfleet_batches_late)", "batches late"),
                    ],
                ),
                Panel(
                    "CPU of each process",
                    "percentunit",
                    [Query(f'rate(process_cpu_seconds_total{{job=~"tokenfleet.*"}}{EACH})', "{{instance}}")],
                ),
            ],
        ),
    ),
)

_GPU = "{{instance}} GPU {{gpu}}"

GPUS = Dashboard(
    "tokenfleet-gpus",
    "tokenfleet: GPUs",
    (),
    (
        (
            "Use",
            [
                Panel("Utilisation", "percent", [Query("DCGM_FI_DEV_GPU_UTIL", _GPU)]),
                Panel(
                    "Memory",
                    "percentunit",
                    [Query("DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)", _GPU)],
                ),
                Panel("Memory in use", "mbytes", [Query("DCGM_FI_DEV_FB_USED", _GPU)]),
            ],
        ),
        (
            "Health",
            [
                Panel("Temperature", "celsius", [Query("DCGM_FI_DEV_GPU_TEMP", _GPU)]),
                Panel("Power", "watt", [Query("DCGM_FI_DEV_POWER_USAGE", _GPU)]),
                Panel("Memory bus", "percent", [Query("DCGM_FI_DEV_MEM_COPY_UTIL", _GPU)]),
            ],
        ),
    ),
)

DASHBOARDS = (INFERENCE, DISPATCHER, GPUS)
