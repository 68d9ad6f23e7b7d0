"""Run the tests of who may do and see what, group by group, and print which passed; exit code 1 when one did not."""

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from rich.console import Console
from rich.table import Table

from bench.report import Target, show

ROOT = Path(__file__).parents[1]
GROUPS: dict[str, str] = {
    "Redis users (ACL)": "access/test_acl.py access/test_acl_file.py access/test_acl_journey.py",
    "TLS": "access/test_tls.py access/test_tls_sentinel.py",
    "tenants and quotas": "access/test_tenants.py protocol/test_quotas.py",
    "API keys and their limits": "gateway/test_keys.py tokenfleet/test_cli_keys.py protocol/test_buckets.py",
    "canary and secrets": "access/test_canary.py protocol/test_settings.py protocol/test_store.py",
    "engine on a private socket": "access/test_engine.py worker/engine/vllm/test_flags.py",
    "containers": "compose",
    "code and packages": "house/test_safety.py house/test_supply.py house/test_repository.py",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One test and how it ended: `passed`, `failed` or `skipped`."""

    name: str
    end: str


def run(paths: Sequence[str], report: Path) -> list[Case]:
    """Run these tests; what a run that could not even begin says goes to stderr."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", f"--junitxml={report}", *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        return [Case(" ".join(paths), "failed")]
    if done.returncode:
        sys.stderr.write(done.stdout)
    return [_case(element) for element in ET.parse(report).iter("testcase")]  # noqa: S314 - written by our own pytest


def _case(element: ET.Element) -> Case:
    kinds = {child.tag for child in element}
    end = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
    return Case(f"{element.get('classname')}::{element.get('name')}", end)


def main() -> int:
    """Run all groups, print each as it ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="tables go to stderr, one JSON object ends stdout")
    options = parser.parse_args()
    console = Console(file=sys.stderr if options.json else sys.stdout, width=100)
    ended: dict[str, list[Case]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, words in GROUPS.items():
            paths = [f"tests/{word}" for word in words.split()]
            ended[name] = cases = run(paths, Path(folder) / "report.xml")
            console.print(_table(name, cases))
    counts = {name: Counter(case.end for case in cases) for name, cases in ended.items()}
    # A test that was skipped has shown nothing.
    targets = [
        Target(f"{name}: failed or skipped", count["failed"] + count["skipped"], 0, "lower")
        for name, count in counts.items()
    ]
    passed = {f"{name}: passed": float(count["passed"]) for name, count in counts.items()}
    show("security", targets, passed, as_json=options.json)
    return int(not all(target.met for target in targets))


def _table(name: str, cases: Sequence[Case]) -> Table:
    """One line for each test, its parameters counted together."""
    table = Table(title=name, title_justify="left")
    for heading in ("test", "passed", "failed", "skipped"):
        table.add_column(heading, justify="left" if heading == "test" else "right")
    for test in dict.fromkeys(_plain(case) for case in cases):
        ends = [case.end for case in cases if _plain(case) == test]
        table.add_row(test, *(str(ends.count(end)) for end in ("passed", "failed", "skipped")))
    return table


def _plain(case: Case) -> str:
    return case.name.partition("[")[0].rpartition("::")[2].removeprefix("test_").replace("_", " ")


if __name__ == "__main__":
    sys.exit(main())
