"""What a process of ours sends to a collector, and that one which is away holds nobody up."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping

from protocol.wire import loads
from telemetry.exporting import EXPORT_S, FLUSH_S
from tests.observe.collector import collecting
from tests.support.nursery import ROOT
from tests.support.servers import free_port

CODE = """
from protocol import log
from telemetry import tracing
log.configure("info", "json")
assert tracing.start("worker")
tracing.span("engine", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", (10.0, 11.0))
"""


def ran(env: Mapping[str, str]) -> str:
    """What such a process says until its end."""
    done = subprocess.run(
        [sys.executable, "-c", CODE], env={**os.environ, **env}, cwd=ROOT, check=True, capture_output=True, text=True
    )
    return done.stderr


def test_what_was_not_sent_is_sent_at_the_end() -> None:
    with collecting() as collector:
        assert ran(collector.env | {"OTEL_BSP_SCHEDULE_DELAY": "60000"}) == ""
        (span,) = collector.spans
    assert (span.service, span.name, span.begin_s, span.end_s) == ("tokenfleet-worker", "engine", 10.0, 11.0)


def test_a_service_may_have_another_name() -> None:
    with collecting() as collector:
        ran(collector.env | {"OTEL_SERVICE_NAME": "mine"})
        assert [span.service for span in collector.spans] == ["mine"]


def test_a_collector_that_is_away_is_told_once_and_holds_no_process_up() -> None:
    begun = time.monotonic()
    said = ran({"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}", "no_proxy": "*"})
    assert time.monotonic() - begun < FLUSH_S + EXPORT_S + 2
    (line,) = map(loads, said.splitlines())
    assert (line["event"], line["level"], line["role"]) == ("traces_not_exported", "warning", "worker")
    assert "127.0.0.1" not in said
