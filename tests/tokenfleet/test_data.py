"""One fleet a data directory."""

import subprocess
import sys
from pathlib import Path

import pytest

from protocol.errors import SetupError
from tokenfleet.up import data
from tokenfleet.up.data import open_data


def test_a_second_fleet_is_refused(tmp_path: Path) -> None:
    with open_data(tmp_path), pytest.raises(SetupError, match="another fleet"), open_data(tmp_path):
        pass


def test_it_is_free_again_afterwards(tmp_path: Path) -> None:
    for _ in range(2):
        with open_data(tmp_path / "new") as opened:
            assert (opened.path, opened.temporary) == (tmp_path / "new", False)


def test_a_server_that_was_left_behind_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_data(tmp_path) as opened:
        left = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[opened.server_lock])
    monkeypatch.setattr(data, "HANDOVER_S", 0.2)
    with pytest.raises(SetupError, match="the server of an earlier fleet"), open_data(tmp_path):
        pass
    monkeypatch.setattr(data, "HANDOVER_S", 10)
    left.kill()
    with open_data(tmp_path):
        pass
    left.communicate()


def test_a_temporary_directory_is_removed() -> None:
    with open_data(None) as opened:
        assert opened.temporary
        assert opened.path.is_dir()
    assert not opened.path.exists()


def test_a_path_that_can_not_be_a_directory_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(SetupError, match=r"can't be used"), open_data(file):
        pass


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    with open_data(tmp_path / "new") as opened:
        assert opened.path.stat().st_mode & 0o077 == 0
