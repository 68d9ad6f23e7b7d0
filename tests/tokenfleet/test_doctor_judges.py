"""What the doctor makes of what it saw, where no test server can be brought to show it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from protocol.server_facts import ServerFacts
from tokenfleet.doctor.finding import Finding, fail, ok, warn
from tokenfleet.doctor.here import of_round_trip, of_store, of_way
from tokenfleet.doctor.server import of_facts
from tokenfleet.doctor.view import as_text

FINE = ServerFacts(
    product="Redis",
    version=(7, 4, 1),
    speaks=(7, 4, 1),
    replica=False,
    replicas=0,
    used=2**20,
    limit=2**30,
    policy="noeviction",
    appends=True,
    writes_fail=False,
)


def judged(**changes: Any) -> dict[str, str]:
    return {finding.check: finding.level for finding in of_facts(replace(FINE, **changes))}


@pytest.mark.parametrize(
    ("changes", "check", "level"),
    [
        ({"speaks": (6, 2, 14)}, "version", "fail"),
        ({"speaks": (7, 0, 15)}, "version", "warn"),
        ({"used": 95 * 2**30 // 100}, "memory", "warn"),
        ({"writes_fail": True}, "aof", "fail"),
        ({"appends": False, "replicas": 1}, "aof", "warn"),
        ({"replica": True}, "primary", "fail"),
    ],
)
def test_a_server_is_judged_by_what_it_says(changes: dict[str, object], check: str, level: str) -> None:
    assert set(judged().values()) == {"ok"}
    found = judged(**changes)
    assert found.pop(check) == level
    assert set(found.values()) == {"ok"}


@pytest.mark.parametrize(
    ("url", "level"),
    [
        ("redis://127.0.0.1:6379/0", "ok"),
        ("redis://localhost", "ok"),
        ("redis://[::1]:6379", "ok"),
        ("unix:///run/redis.sock", "ok"),
        ("redis://10.0.0.5:6379/0", "fail"),
        ("rediss://redis.internal/0", "fail"),
        ("redis://me:hush@redis.internal/0", "warn"),
        ("rediss://me:hush@redis.internal/0", "ok"),
        ("redis+sentinel://127.0.0.1,10.0.0.5:26380/fleet/0", "fail"),
        ("rediss+sentinel://me:hush@a,b/fleet/0", "ok"),
    ],
)
def test_the_way_to_another_host_needs_tls_and_a_password(url: str, level: str) -> None:
    found = of_way(url)
    assert (found.level, "hush" in found.said + found.advice) == (level, False)


def test_a_folder_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [of_store(folder).level for folder in (None, tmp_path, tmp_path / "new")] == ["ok", "ok", "warn"]
    (tmp_path / "file").write_text("")
    assert [of_store(tmp_path / "file").level, of_store(tmp_path / "file" / "below").level] == ["fail", "fail"]
    monkeypatch.setattr("os.access", lambda *_: False)
    assert of_store(tmp_path).level == "fail"


def test_a_full_disk_and_a_long_way_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2**20))
    assert of_store(tmp_path).level == "warn"
    assert [of_round_trip(seconds).level for seconds in (0.001, 0.05)] == ["ok", "warn"]


def shown(*findings: Finding) -> str:
    console = Console(width=80, record=True, quiet=True)
    with console.capture() as captured:
        console.quiet = False
        console.print(as_text(findings, "redis://h"))
    return captured.get()


def test_what_to_change_stands_below_what_was_found() -> None:
    text = shown(ok("a", "fine"), warn("b", "hm", "Do this."), fail("c", "no", "Do that."))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines == [
        "redis://h",
        "ok a fine",
        "warn b hm",
        "→ Do this.",
        "FAIL c no",
        "→ Do that.",
        "1 fails, 1 to look at",
    ]
    assert shown(ok("a", "fine")).splitlines()[-1].strip() == "all is well"
