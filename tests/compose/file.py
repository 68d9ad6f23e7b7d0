"""The compose file, read."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if "build" in service]
ROLES = [name for name in OURS if "profiles" not in SERVICES[name]]


def make_secrets(folder: Path) -> None:
    """Run the script that the file's first lines name."""
    script = ROOT / "deploy" / "redis" / "passwords.sh"
    subprocess.run(["/bin/sh", script, folder], check=True)
