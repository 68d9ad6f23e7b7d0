"""Write docs/licences.md: the licence of every package that a lock file pins, from what is installed."""

import re
from importlib import metadata
from pathlib import Path

from bench.audit import pins, text_of

PAGE = Path(__file__).parents[1] / "docs" / "licences.md"
ELSEWHERE = "not installed on this platform"
_HEAD = """# Licences

Made by `make licences` from the metadata of the installed packages; a test holds it against the lock files. tokenfleet
itself is under the Apache License 2.0 (`LICENSE`). vLLM is no part of it: a worker runs the one that its host has.
"""
_SECTIONS = {"run": "What users install", "model": "The packaged small model", "dev": "Only for development"}
_CLASSIFIER = "License :: "
_FOR_SOME = re.compile(r"^(?P<name>\S+)==\S+ ; (?P<marker>.*\bpython_(full_)?version\b.*) \\$", re.MULTILINE)


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


def for_some_pythons(lock: str) -> dict[str, str]:
    """Package → marker, of those that only some versions of Python install: whoever makes the page may have another."""
    return {match["name"]: match["marker"] for match in _FOR_SOME.finditer(text_of(lock))}


def _told(lock: str, package: str) -> str:
    marker = for_some_pythons(lock).get(package)
    return f"installed only where `{marker}`" if marker else licence_of(package)


def page() -> str:
    """The whole page, the same whichever Python makes it."""
    parts, listed = [_HEAD], set()
    for lock, title in _SECTIONS.items():
        packages = [pin for pin in pins(lock) if pin not in listed]
        listed |= set(packages)
        rows = [f"| {name} | {version} | {_told(lock, name)} |" for name, version in packages]
        parts.append(
            "\n".join([f"\n## {title}\n", "| package | version | licence |", "| --- | --- | --- |", *rows, ""])
        )
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
