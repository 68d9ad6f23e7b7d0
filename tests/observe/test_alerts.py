"""The alert rules: accepted by promtool, and each fires when it should and not before."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.compose.file import ROLES
from tests.observe.prometheus import OBSERVE, program, prometheus_of
from tests.support.waiting import eventually

RULES = [rule for group in yaml.safe_load((OBSERVE / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
SHARD = 'pool="p",shard="0"'
OLDEST = f'tokenfleet_lane_oldest_seconds{{{{{SHARD},priority="{{}}"}}}}'.format
TARGET = 'tokenfleet_lane_target_seconds{{priority="{}"}}'.format
ANSWERS = 'tokenfleet_gateway_requests_total{{instance="g",route="{1}",code="{0}"}}'.format
CHATS = "/v1/chat/completions"


@dataclass(frozen=True)
class Case:
    """What Prometheus sees each 15 s, in promtool's own words, and when that is and is not an alarm."""

    series: dict[str, str]
    quiet: str
    firing: str


CASES = {
    "TokenfleetNoLeader": Case({f"tokenfleet_scheduler_leader{{{SHARD}}}": "1x8 0x40"}, "2m15s", "3m"),
    "TokenfleetTargetDown": Case({'up{job="tokenfleet",instance="w"}': "1x8 0x40"}, "2m30s", "3m30s"),
    "TokenfleetLaneLate": Case({OLDEST("high"): "0.2x8 3x40", TARGET("high"): "0.5x50"}, "3m30s", "5m"),
    "TokenfleetOfflineLaneLate": Case({OLDEST("low"): "500x8 700x99", TARGET("low"): "600x99"}, "16m", "18m"),
    "TokenfleetNoWorkers": Case(
        {
            f'tokenfleet_lane_jobs{{{SHARD},priority="low"}}': "7x50",
            f'tokenfleet_workers{{{SHARD},state="active"}}': "1x8 0x40",
            f'tokenfleet_workers{{{SHARD},state="loading"}}': "0x8 1x40",
        },
        "2m30s",
        "4m",
    ),
    "TokenfleetWorkerLost": Case({f"tokenfleet_leases_lost_total{{{SHARD}}}": "4x20 5x100"}, "5m", "6m"),
    "TokenfleetEngineRestarts": Case(
        {f'tokenfleet_engine_restarts_total{{{SHARD},worker="w"}}': "0x20 1x20 2x20 4x200"}, "14m", "17m"
    ),
    "TokenfleetDeadLetters": Case({f"tokenfleet_set_aside_total{{{SHARD}}}": "9x20 10x100"}, "5m", "6m"),
    "TokenfleetRoundsFail": Case(
        {f"tokenfleet_scheduler_failed_rounds_total{{{SHARD}}}": "0x20 0+15x100"}, "6m", "14m"
    ),
    "TokenfleetRedisMemory": Case(
        {
            f"tokenfleet_redis_memory_bytes{{{SHARD}}}": "50x20 90x100",
            f"tokenfleet_redis_memory_limit_bytes{{{SHARD}}}": "100x120",
        },
        "8m",
        "11m",
    ),
    "TokenfleetRedisAppendOnlyFails": Case({f"tokenfleet_redis_append_only_ok{{{SHARD}}}": "1x20 0x100"}, "5m", "7m"),
    "TokenfleetGatewayErrors": Case(
        {ANSWERS("200", CHATS): "0+100x200", ANSWERS("503", CHATS): "0+1x60 60+20x140"}, "15m", "28m"
    ),
    "TokenfleetBatchesLate": Case({"tokenfleet_batches_late": "0x20 2x200"}, "15m", "22m"),
    "TokenfleetGpuHot": Case({'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="u"}': "70x20 90x100"}, "8m", "12m"),
}
QUIET = {
    "a batch that is late pages nobody": (
        "TokenfleetLaneLate",
        {OLDEST("medium"): "0+15x99", TARGET("medium"): "60x99", TARGET("high"): "0.5x99"},
    ),
    "a chat that is late is no offline job": (
        "TokenfleetOfflineLaneLate",
        {OLDEST("high"): "9x99", TARGET("high"): "0.5x99", TARGET("low"): "600x99"},
    ),
    "clients that do not wait": (
        "TokenfleetGatewayErrors",
        {ANSWERS("504", CHATS): "0+90x99", ANSWERS("200", CHATS): "0+10x99"},
    ),
    "a gateway that is not ready": (
        "TokenfleetGatewayErrors",
        {ANSWERS("503", "/ready"): "0+90x99", ANSWERS("200", CHATS): "0+10x99"},
    ),
    "a Redis without a limit is never full": (
        "TokenfleetRedisMemory",
        {
            f"tokenfleet_redis_memory_bytes{{{SHARD}}}": "9x99",
            f"tokenfleet_redis_memory_limit_bytes{{{SHARD}}}": "0x99",
        },
    ),
}


def promtool(*words: str | Path) -> None:
    told = subprocess.run(
        [program("promtool"), *map(str, words)], cwd=OBSERVE, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr


def moment(alert: str, at: str, *, fires: bool) -> dict[str, object]:
    asked = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'
    return {"expr": asked, "eval_time": at, "exp_samples": [{"labels": "{}", "value": int(fires)}]}


def try_rules(folder: Path, alert: str, case: Case) -> None:
    moments = [moment(alert, case.quiet, fires=False)]
    moments += [moment(alert, case.firing, fires=True)] if case.firing else []
    series = [{"series": name, "values": values} for name, values in case.series.items()]
    test = {"interval": "15s", "input_series": series, "promql_expr_test": moments}
    file = folder / "case.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(OBSERVE / "alerts.yml")], "evaluation_interval": "15s", "tests": [test]})
    )
    promtool("test", "rules", file)


def test_promtool_accepts_rules_and_configuration() -> None:
    promtool("check", "rules", "alerts.yml")
    promtool("check", "config", "prometheus.yml")


@pytest.mark.parametrize("alert", [rule["alert"] for rule in RULES])
def test_each_alert_fires_when_it_should_and_not_before(tmp_path: Path, alert: str) -> None:
    try_rules(tmp_path, alert, CASES[alert])


def test_where_nobody_schedules_at_all_there_is_no_leader(tmp_path: Path) -> None:
    try_rules(tmp_path, "TokenfleetNoLeader", Case({}, "15s", "1m"))


@pytest.mark.parametrize("why", QUIET)
def test_what_is_as_it_should_be_is_no_alarm(tmp_path: Path, why: str) -> None:
    alert, series = QUIET[why]
    try_rules(tmp_path, alert, Case(series, "22m", ""))


def test_only_a_late_dialogue_wakes_somebody() -> None:
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in RULES if "LaneLate" in rule["alert"]}
    assert severities == {"TokenfleetLaneLate": "page", "TokenfleetOfflineLaneLate": "ticket"}


async def test_a_service_that_is_stopped_is_a_target_that_is_down(tmp_path: Path) -> None:
    """None of them runs here, nor has a name, as in Docker's network once a container is stopped."""
    config = yaml.safe_load((OBSERVE / "prometheus.yml").read_text())
    with prometheus_of(tmp_path, config["scrape_configs"]) as server:
        await eventually(server.ready, timeout_s=30)
        expr = next(rule["expr"] for rule in RULES if rule["alert"] == "TokenfleetTargetDown")
        await eventually(lambda: server.query(expr) == [0] * len(ROLES), timeout_s=30)


def test_each_alert_says_what_is_wrong_and_what_to_do() -> None:
    for rule in RULES:
        assert rule["annotations"].keys() == {"summary", "runbook"}, rule["alert"]
        assert len(rule["annotations"]["runbook"]) > 80, rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket")
