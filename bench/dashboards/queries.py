"""What panels ask Prometheus for, in its own language."""

from bench.dashboards.grafana import Panel, Query

EACH = "[$__rate_interval]"
TOLD = "tokenfleet_worker_"
HERE = 'pool=~"$pool"'
WORKERS = 'pool=~"$pool",worker=~"$worker"'
POOL = ("pool", "label_values(tokenfleet_scheduler_leader, pool)")
WORKER = ("worker", 'label_values(tokenfleet_worker_load_score{pool=~"$pool"}, worker)')
QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


def rate(metric: str, by: str = "", where: str = WORKERS) -> str:
    """A counter's rate, summed up."""
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{{{where}}}{EACH}))"


def fleet(metric: str, by: str = "") -> str:
    """Of what is counted in Redis: each leader after the other tells the same."""
    return f"max by (pool, shard{f', {by}' if by else ''}) (rate({metric}{{{HERE}}}{EACH}))"


def quantile(share: float, metric: str, by: str = "", where: str = WORKERS) -> str:
    """A histogram's quantile."""
    return f"histogram_quantile({share}, sum by (le{f', {by}' if by else ''}) (rate({metric}_bucket{{{where}}}{EACH})))"


def quantiles(title: str, metric: str, means: str = "") -> Panel:
    """A panel of a histogram's usual quantiles."""
    return Panel(title, "s", [Query(quantile(share, metric), name) for name, share in QUANTILES], means=means)
