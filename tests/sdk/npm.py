"""The tests that are written in JavaScript, in `node/`, run by Node.js's own test runner."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from protocol.wire import dumps
from tests.sdk.front import Front

REQUIRE_NODE = "TOKENFLEET_REQUIRE_NODE"
HERE = Path(__file__).parent / "node"
END_S = 300


def check_installed() -> None:
    """Skip where Node.js or the package is missing; with TOKENFLEET_REQUIRE_NODE=1 that is a failure."""
    why = ""
    if shutil.which("node") is None:
        why = "there is no Node.js on the path"
    elif not (HERE / "node_modules" / "openai").is_dir():
        why = "the npm package `openai` is not installed: make test-sdk"
    if why and os.environ.get(REQUIRE_NODE) == "1":
        pytest.fail(f"{REQUIRE_NODE} is set, but {why}")
    if why:
        pytest.skip(why)


def run_npm(name: str, front: Front, model: str) -> None:
    """Run one file of tests against a gateway; what failed is told in Node.js's words."""
    check_installed()
    told = {
        "TOKENFLEET_GATEWAY": front.url,
        "TOKENFLEET_KEYS": dumps(dict(front.keys)).decode(),
        "TOKENFLEET_MODEL": model,
        "NO_PROXY": "127.0.0.1",
    }
    command = ["node", "--test", "--test-reporter=spec", name]
    done = subprocess.run(
        command, cwd=HERE, env=os.environ | told, capture_output=True, text=True, timeout=END_S, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
