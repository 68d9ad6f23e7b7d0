"""The systemd unit: what systemd says to it, and that it fits the worker's own times, flags and exit codes."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.settings import Settings
from tokenfleet.cli.durations import seconds_of
from tokenfleet.cli.worker import command as worker_command

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "tokenfleet-worker@.service"
ANALYZE = shutil.which("systemd-analyze")
PROGRAM = "/opt/tokenfleet/bin/tokenfleet"


def settings_of(section: str) -> list[tuple[str, str]]:
    """Key and value of each line of a section; a key may stand there twice."""
    lines = UNIT.read_text().split(f"[{section}]\n")[1].partition("\n[")[0].splitlines()
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return [(key, value) for key, _, value in pairs]


SERVICE = dict(settings_of("Service"))


def variables() -> dict[str, str]:
    """What worker.env says."""
    lines = (DEPLOY / "worker.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def arguments(**said: str) -> list[str]:
    """The words that systemd hands over: `${NAME}` is one, `$NAME` as many as it holds."""
    told = variables() | said
    words: list[str] = []
    for word in shlex.split(SERVICE["ExecStart"]):
        if word.startswith("${"):
            words.append(told[word[2:-1]])
        elif word.startswith("$"):
            words += shlex.split(told[word[1:]])
        else:
            words.append(word)
    return words


def test_systemd_has_nothing_to_say(tmp_path: Path) -> None:
    if ANALYZE is None:
        pytest.skip("no systemd here")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(PROGRAM, sys.executable))
    instance = tmp_path / UNIT.name.replace("@", "@0")
    done = subprocess.run([ANALYZE, "verify", instance], capture_output=True, text=True, check=False)
    # Unknown keys and values are warnings there, with exit code 0.
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize(
    "said", [{}, {"WORKER_FLAGS": "--standby --slots 64", "VLLM_FLAGS": "--max-model-len 8192 --enable-sleep-mode"}]
)
def test_the_command_is_one_of_the_workers(said: dict[str, str]) -> None:
    program, word, *rest = arguments(**said)
    assert (program, word) == (PROGRAM, "worker")
    with worker_command.make_context("worker", rest) as context:
        assert context.params["models"] == (variables()["MODEL"],)


def test_a_drain_is_never_cut_short() -> None:
    assert (SERVICE["KillSignal"], SERVICE["KillMode"]) == ("SIGTERM", "mixed")
    assert seconds_of(SERVICE["TimeoutStopSec"]) >= Settings().drain_s + 50


def test_a_drained_worker_stays_away_and_a_failed_one_comes_back() -> None:
    assert SERVICE["Restart"] == "on-failure"
    assert dict(settings_of("Unit"))["StartLimitIntervalSec"] == "0"
    assert SERVICE["OOMPolicy"] == "continue"


def test_an_instance_is_one_gpu_unless_its_file_says_otherwise() -> None:
    assert ("Environment", "CUDA_VISIBLE_DEVICES=%i") in settings_of("Service")
    files = [value for key, value in settings_of("Service") if key == "EnvironmentFile"]
    assert files == ["/etc/tokenfleet/worker.env", "-/etc/tokenfleet/worker-%i.env"]


def test_it_can_do_no_more_than_it_must() -> None:
    strict = ("NoNewPrivileges", "PrivateTmp", "ProtectHome", "RestrictNamespaces", "RestrictSUIDSGID")
    assert {SERVICE[key] for key in strict} == {"yes"}
    assert (SERVICE["ProtectSystem"], SERVICE["CapabilityBoundingSet"], SERVICE["User"]) == ("strict", "", "tokenfleet")
    assert not {"PrivateDevices", "MemoryDenyWriteExecute"} & SERVICE.keys()
