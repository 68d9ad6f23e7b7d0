"""Adds the hashes that uv leaves out: those of files that pip finds in a folder and not in an index."""

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

_UNHASHED = re.compile(r"^(\S+==[^\s;]+)$", re.MULTILINE)
"""A pin that stands alone on its line; one with hashes goes on with a backslash."""


def main() -> None:
    """Complete the lock file that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lock", type=Path)
    path: Path = parser.parse_args().lock
    text = _UNHASHED.sub(lambda pin: _with_hashes(pin[1]), path.read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8")


def _with_hashes(requirement: str) -> str:
    """The pin with the hash of the file that pip takes for it here."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, requirement]
        subprocess.run(pip, check=True)
        hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in Path(folder).iterdir()]
    return " \\\n".join([requirement, *(f"    --hash=sha256:{digest}" for digest in hashes)])


if __name__ == "__main__":
    main()
