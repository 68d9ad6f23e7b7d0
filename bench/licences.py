"""Write docs/licences.md: the licence of every package that a lock file pins, from what is installed."""

import re
from importlib import metadata
from pathlib import Path

from bench.audit import pins

PAGE = Path(__file__).parents[1] / "docs" / "licences.md"
ELSEWHERE = "not installed on this platform"
_HEAD = """# Licences

Made by `make licences` from the metadata of the installed packages; a test holds it against the lock files. tokenfleet
itself is under the Apache License 2.0 (`LICENSE`). vLLM is no part of it: a worker runs the one that its host has.
"""
_SECTIONS = {"run": "What users install", "model": "The packaged small model", "dev": "Only for development"}
_CLASSIFIER = "License :: "


def licence_of(package: str) -> str:
    """In a few words: the SPDX expression where there is one, else the classifiers, else what the field begins with."""
    try:
        told = metadata.metadata(package)
    except metadata.PackageNotFoundError:
        return ELSEWHERE
    if expression := _field(told, "License-Expression"):
        return str(expression)
    names = [name.rpartition(" :: ")[2] for name in told.get_all("Classifier") or [] if name.startswith(_CLASSIFIER)]
    names = [name for name in names if name != "OSI Approved"]
    return ", ".join(names) or _first_line(_field(told, "License")) or "not told"


def _field(told: metadata.PackageMetadata, name: str) -> str:
    return str((told.get_all(name) or [""])[0])


def _first_line(text: str) -> str:
    return re.sub(r"\s+", " ", text.strip().partition("\n")[0])[:80]


def page() -> str:
    """The whole page."""
    parts, listed = [_HEAD], set()
    for lock, title in _SECTIONS.items():
        packages = [pin for pin in pins(lock) if pin not in listed]
        listed |= set(packages)
        rows = [f"| {name} | {version} | {licence_of(name)} |" for name, version in packages]
        parts.append(
            "\n".join([f"\n## {title}\n", "| package | version | licence |", "| --- | --- | --- |", *rows, ""])
        )
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
