"""Failpoints: each exists in the code, none acts unless it is asked for, and what is asked for is checked."""

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog

from protocol import failpoints
from protocol.errors import SetupError
from tests.house.tree import ROOT, sources


@pytest.fixture(autouse=True)
def _disarmed_afterwards() -> Iterator[None]:
    yield
    failpoints._armed.clear()


def reached() -> set[str]:
    """The points that the code names, in calls of `reach` and of the outbox's helper."""
    return {
        str(node.args[0].value)
        for source in sources("producer", "scheduler", "worker")
        for node in source.nodes
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("failpoints.reach", "_reach")
        and isinstance(node.args[0], ast.Constant)
    }


def test_each_named_point_is_reached_somewhere_and_no_other() -> None:
    assert reached() == failpoints.POINTS


def test_without_the_variable_nothing_is_armed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(failpoints.VARIABLE, raising=False)
    with structlog.testing.capture_logs() as lines:
        failpoints.arm()
        for point in failpoints.POINTS:
            failpoints.reach(point)
    assert (failpoints._armed, lines) == ({}, [])


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("worker.mid_stream=exit@3", failpoints.EXIT_CODE),
        ("worker.mid_stream=kill@3", -9),
        ("worker.mid_stream:a=exit@3", failpoints.EXIT_CODE),
        ("worker.mid_stream=exit@4", 0),
        ("worker.mid_stream:b=exit", 0),
        ("worker.before_start=exit, worker.before_finish=kill", 0),
    ],
)
def test_an_armed_point_ends_the_process_at_its_reach_and_says_so(text: str, end: int) -> None:
    code = "from protocol import failpoints as f; f.arm(); [f.reach('worker.mid_stream', 'a') for _ in range(3)]"
    command, env = [sys.executable, "-c", code], {failpoints.VARIABLE: text}
    done = subprocess.run(command, cwd=ROOT, env=env, check=False, capture_output=True, text=True)
    assert done.returncode == end
    assert "failpoints_on" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "text", ["worker.nowhere=kill", "worker.mid_stream=hug", "worker.mid_stream", "worker.mid_stream=kill@0", "=kill"]
)
def test_what_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, text)
    with pytest.raises(SetupError, match="TOKENFLEET_FAILPOINTS"):
        failpoints.arm()
