"""Where a setting comes from: flag, environment, file, default, in this order."""

from pathlib import Path

import pytest

from protocol.errors import SetupError
from protocol.settings import CONFIG_VARIABLE, Settings


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_order_is_flag_environment_file_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.load().policy == "predictive"
    (tmp_path / "tokenfleet.toml").write_text('policy = "from-file"\nlease_s = 7')
    assert Settings.load().policy == "from-file"
    monkeypatch.setenv("TOKENFLEET_POLICY", "from-environment")
    assert Settings.load().policy == "from-environment"
    loaded = Settings.load(policy="from-flag", redis_url=None)
    assert (loaded.policy, loaded.lease_s, loaded.redis_url) == ("from-flag", 7, "redis://127.0.0.1:6379/0")


def test_the_environment_may_name_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.toml").write_text("tick_s = 0.25")
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "other.toml"))
    assert Settings.load().tick_s == 0.25
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "missing.toml"))
    with pytest.raises(SetupError, match="names a file that is not there"):
        Settings.load()


@pytest.mark.parametrize("text", ["tick_s = ", "lease_s = -1", "log_level = 'loud'"])
def test_a_bad_file_is_told_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenfleet.toml").write_text(text)
    with pytest.raises(SetupError) as told:
        Settings.load()
    assert "\n" not in str(told.value)


def test_a_bad_flag_is_told_by_its_name() -> None:
    with pytest.raises(SetupError, match="invalid settings: lease_s: Input should be greater than 0"):
        Settings.load(lease_s=0)
