"""What a user makes before the compose file is started."""

from pathlib import Path

import pytest

from tests.compose.file import make_secrets


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """The folder of passwords and users."""
    make_secrets(tmp_path / "secrets")
    return tmp_path / "secrets"
