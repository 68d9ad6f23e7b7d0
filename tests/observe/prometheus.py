"""A real Prometheus, of the machine's own package."""

import json
import math
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

from tests.support.servers import dying_with_us, free_port

OBSERVE = Path(__file__).parents[2] / "deploy" / "observe"
REQUIRED = "TOKENFLEET_REQUIRE_PROMETHEUS"


def program(name: str) -> str:
    """`prometheus` or `promtool`; the test is skipped where the machine has none, unless it must."""
    found = shutil.which(name)
    if found is None:
        assert os.environ.get(REQUIRED) != "1", f"{name} is not installed; on Debian: apt-get install prometheus"
        pytest.skip(f"{name} is not installed")
    return found


class Prometheus:
    """One that scrapes each second."""

    def __init__(self, port: int) -> None:
        self._port = port

    def query(self, expr: str) -> list[float]:
        """The value of each series that the expression has now; NaN is one."""
        return [float(series["value"][1]) for series in self._get("query", query=expr)["result"]]

    def finite(self, expr: str) -> list[float]:
        """Those that are numbers."""
        return list(filter(math.isfinite, self.query(expr)))

    def rules(self) -> dict[str, str]:
        """Each alert's name, and `ok` where Prometheus can ask for it."""
        groups = self._get("rules")["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    def ready(self) -> bool:
        try:
            return self.query("vector(1)") == [1]
        except OSError:
            return False

    def _get(self, path: str, **query: str) -> Any:
        with urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}?{urlencode(query)}", timeout=20) as answer:
            return json.loads(answer.read())["data"]


def prometheus(folder: Path, jobs: Mapping[str, list[int]]) -> AbstractContextManager[Prometheus]:
    """Scrape these ports under these jobs' names, with our rules, for the length of a block."""
    scraped = [
        {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}]}
        for job, ports in jobs.items()
    ]
    return prometheus_of(folder, scraped)


@contextmanager
def prometheus_of(folder: Path, scraped: Sequence[Mapping[str, Any]]) -> Iterator[Prometheus]:
    """Scrape by these configurations, each second, with our rules, for the length of a block."""
    times = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config = {"global": times, "rule_files": [str(OBSERVE / "alerts.yml")], "scrape_configs": list(scraped)}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    words = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
    command = [*dying_with_us(), program("prometheus"), *words, f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield Prometheus(port)
        finally:
            process.terminate()
            process.wait(20)
