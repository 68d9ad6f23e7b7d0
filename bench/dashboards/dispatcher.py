"""The dispatcher: lanes, decisions, what goes wrong, Redis, batches."""

from bench.dashboards.grafana import Dashboard, Panel, Query
from bench.dashboards.queries import EACH, HERE, POOL, TOLD, fleet, quantile, rate

_SCHEDULER = "tokenfleet_scheduler_"

DISPATCHER = Dashboard(
    "tokenfleet-dispatcher",
    "tokenfleet: dispatcher",
    (POOL,),
    (
        (
            "Now",
            [
                Panel("Shards led", "short", [Query(f"sum({_SCHEDULER}leader{{{HERE}}})")], "stat"),
                Panel("Waiting", "short", [Query(f"sum(tokenfleet_lane_jobs{{{HERE}}})")], "stat"),
                Panel("Active workers", "short", [Query(f'sum(tokenfleet_workers{{{HERE},state="active"}})')], "stat"),
                Panel("Dead letters", "short", [Query(f"sum(tokenfleet_dead_letters{{{HERE}}})")], "stat"),
            ],
        ),
        (
            "Lanes",
            [
                Panel("Depth", "short", [Query(f"sum by (priority) (tokenfleet_lane_jobs{{{HERE}}})", "{{priority}}")]),
                Panel(
                    "Oldest, beside its target",
                    "s",
                    [
                        Query(f"max by (priority) (tokenfleet_lane_oldest_seconds{{{HERE}}})", "{{priority}}"),
                        Query("max by (priority) (tokenfleet_lane_target_seconds)", "{{priority}}: target"),
                    ],
                ),
                Panel(
                    "p95 of the wait",
                    "s",
                    [Query(quantile(0.95, f"{_SCHEDULER}wait_seconds", "priority", HERE), "{{priority}}")],
                ),
                Panel(
                    "Delayed",
                    "short",
                    [Query(f"sum by (priority) (tokenfleet_delayed_jobs{{{HERE}}})", "{{priority}}")],
                ),
            ],
        ),
        (
            "Decisions",
            [
                Panel(
                    "Assignments a second",
                    "ops",
                    [Query(rate(f"{_SCHEDULER}assignments_total", "priority", HERE), "{{priority}}")],
                ),
                Panel(
                    "p95 of a round's steps",
                    "s",
                    [Query(quantile(0.95, f"{_SCHEDULER}step_seconds", "step", HERE), "{{step}}")],
                ),
                Panel(
                    "Why windows close",
                    "ops",
                    [Query(rate(f"{_SCHEDULER}windows_closed_total", "reason", HERE), "{{reason}}")],
                ),
                Panel(
                    "p95 of a window's jobs",
                    "short",
                    [Query(quantile(0.95, f"{_SCHEDULER}window_jobs", "priority", HERE), "{{priority}}")],
                ),
            ],
        ),
        (
            "What goes wrong",
            [
                Panel("Put off", "ops", [Query(rate(f"{_SCHEDULER}parked_total", "reason", HERE), "{{reason}}")]),
                Panel("Ends", "ops", [Query(fleet("tokenfleet_jobs_ended_total", "state"), "{{state}}")]),
                Panel(
                    "Strikes, tries, set aside, taken back",
                    "ops",
                    [
                        Query(fleet(f"tokenfleet_{name}_total"), name.replace("_", " "))
                        for name in ("strikes", "failed_tries", "set_aside", "leases_lost", "jobs_taken_back")
                    ],
                ),
                Panel(
                    "Retries and rounds that fail",
                    "ops",
                    [
                        Query(rate(f"{_SCHEDULER}retries_total", where=HERE), "retries"),
                        Query(rate(f"{_SCHEDULER}failed_rounds_total", where=HERE), "failed rounds"),
                    ],
                ),
            ],
        ),
        (
            "Workers and Redis",
            [
                Panel(
                    "Workers by state", "short", [Query(f"sum by (state) (tokenfleet_workers{{{HERE}}})", "{{state}}")]
                ),
                Panel(
                    "Load score", "short", [Query(f"{TOLD}load_score{{{HERE}}}", "{{worker}}")], means="Full at 0.9."
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
