"""Inference, laid out as vLLM's own users know it."""

from bench.dashboards.grafana import Dashboard, Panel, Query
from bench.dashboards.queries import EACH, HERE, POOL, TOLD, WORKER, WORKERS, quantiles, rate

_ENDED = 'pool=~"$pool",worker=~"$worker",end=~"completed|failed"'
_FAULTY = 'pool=~"$pool",worker=~"$worker",end=~"failed|try|strike"'

INFERENCE = Dashboard(
    "tokenfleet-inference",
    "tokenfleet: inference",
    (POOL, WORKER),
    (
        (
            "Now",
            [
                Panel("Requests a second", "reqps", [Query(rate(f"{TOLD}attempts_total", where=_ENDED))], "stat"),
                Panel(
                    "Prompt tokens a second", "short", [Query(rate("tokenfleet_engine_prompt_tokens_total"))], "stat"
                ),
                Panel(
                    "Generated tokens a second",
                    "short",
                    [Query(rate("tokenfleet_engine_generated_tokens_total"))],
                    "stat",
                ),
                Panel("Faults a second", "reqps", [Query(rate(f"{TOLD}attempts_total", where=_FAULTY))], "stat"),
                Panel(
                    "Unreachable a second",
                    "reqps",
                    [Query(rate("tokenfleet_scheduler_refusals_total", where=HERE))],
                    "stat",
                    "Refused: their first token would have come too late.",
                ),
                Panel(
                    "Engines that serve",
                    "short",
                    [Query(f'sum({TOLD}state{{{WORKERS},state="active"}})')],
                    "stat",
                ),
            ],
        ),
        (
            "Requests",
            [
                Panel("Requests by how they ended", "reqps", [Query(rate(f"{TOLD}attempts_total", "end"), "{{end}}")]),
                Panel(
                    "Token throughput",
                    "short",
                    [
                        Query(rate("tokenfleet_engine_prompt_tokens_total"), "prompt"),
                        Query(rate("tokenfleet_engine_generated_tokens_total"), "generated"),
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
                quantiles("Time to first token", f"{TOLD}first_token_seconds", "From the submission on."),
                quantiles("Time between tokens", f"{TOLD}between_tokens_seconds"),
                quantiles("End to end", f"{TOLD}job_seconds", "From the submission to the end, of those completed."),
            ],
        ),
        (
            "Where the time goes",
            [
                quantiles("Queue", f"{TOLD}queue_seconds", "From the submission to the start on a worker."),
                quantiles("Engine to first token", f"{TOLD}engine_first_token_seconds"),
                quantiles("Engine to the end", f"{TOLD}engine_seconds"),
            ],
        ),
        (
            "Engines",
            [
                Panel(
                    "Running and waiting",
                    "short",
                    [
                        Query(f"{TOLD}running_requests{{{WORKERS}}}", "{{worker}} running"),
                        Query(f"{TOLD}waiting_requests{{{WORKERS}}}", "{{worker}} waiting"),
                    ],
                ),
                Panel("KV cache", "percentunit", [Query(f"{TOLD}kv_ratio{{{WORKERS}}}", "{{worker}}")]),
                Panel(
                    "Prefix cache hits",
                    "percentunit",
                    [
                        Query(
                            f"{rate('tokenfleet_engine_prefix_hit_tokens_total', 'worker')}"
                            f" / {rate('tokenfleet_engine_prefix_query_tokens_total', 'worker')}",
                            "{{worker}}",
                        )
                    ],
                ),
                Panel(
                    "Preemptions and restarts",
                    "short",
                    [
                        Query(rate("tokenfleet_engine_preemptions_total", "worker"), "{{worker}} preemptions"),
                        Query(f"tokenfleet_engine_restarts_total{{{WORKERS}}}", "{{worker}} restarts"),
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
