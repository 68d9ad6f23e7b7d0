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


# An empty host would be every interface.
@pytest.mark.parametrize("text", ["tick_s = ", "lease_s = -1", "log_level = 'loud'", "metrics_host = ''"])
def test_a_bad_file_is_told_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenfleet.toml").write_text(text)
    with pytest.raises(SetupError) as told:
        Settings.load()
    assert "\n" not in str(told.value)


def test_a_variable_may_name_a_file_that_holds_the_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("hush\n")
    (tmp_path / "tokenfleet.toml").write_text('redis_password = "from the file of settings"')
    monkeypatch.setenv("TOKENFLEET_REDIS_PASSWORD_FILE", str(tmp_path / "secret"))
    assert Settings.load().redis_password == "hush"
    monkeypatch.setenv("TOKENFLEET_REDIS_PASSWORD", "from the environment")
    assert Settings.load().redis_password == "from the environment"


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_file_that_cant_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    monkeypatch.setenv("TOKENFLEET_REDIS_URL_FILE", str(tmp_path / "secret"))
    with pytest.raises(SetupError, match="TOKENFLEET_REDIS_URL_FILE names a file that can't be read"):
        Settings.load()


@pytest.mark.parametrize(
    ("url", "whole"),
    [
        ("redis://host:1/0", "redis://:p%40%2Fs@host:1/0"),
        ("redis://me@host:1/0", "redis://me:p%40%2Fs@host:1/0"),
        ("redis://me:old@host:1/0?db=3", "redis://me:p%40%2Fs@host:1/0?db=3"),
    ],
)
def test_the_password_of_the_settings_takes_its_place_in_the_url(url: str, whole: str) -> None:
    assert Settings(redis_url=url, redis_password="p@/s").store_url == whole
    assert Settings(redis_url=url).store_url == url


def test_another_url_is_used_as_it_is() -> None:
    settings = Settings(redis_url="rediss://h/0", redis_password="p", redis_ca=Path("/ca"), tenant="t")
    other = settings.for_url("redis://other")
    assert (other.store_url, other.tenant) == ("redis://other", "t")


def test_an_empty_variable_takes_back_what_the_file_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tokenfleet.toml").write_text('redis_password = "p"\nredis_ca = "/ca"\n')
    monkeypatch.setenv("TOKENFLEET_CONFIG", str(tmp_path / "tokenfleet.toml"))
    assert "ca" in Settings.load().store_url
    for name in ("PASSWORD", "CA"):
        monkeypatch.setenv(f"TOKENFLEET_REDIS_{name}", "")
    assert Settings.load().store_url == "redis://127.0.0.1:6379/0"


def test_files_of_certificates_become_part_of_the_url() -> None:
    settings = Settings(
        redis_url="rediss://h/0?db=1", redis_ca=Path("/ca"), redis_cert=Path("/c"), redis_key=Path("/k")
    )
    assert settings.store_url == "rediss://h/0?db=1&ssl_ca_certs=%2Fca&ssl_certfile=%2Fc&ssl_keyfile=%2Fk"


def test_secrets_are_not_shown() -> None:
    settings = Settings(redis_url="redis://me:hush@host", redis_password="hush", engine_api_key="hush")
    assert "hush" not in f"{settings!r} {settings}"
    with pytest.raises(SetupError) as told:
        _ = Settings(redis_url="redis://me:hush@[::1").store_url
    assert "hush" not in str(told.value)


def test_a_bad_flag_is_told_by_its_name() -> None:
    with pytest.raises(SetupError, match="invalid settings: lease_s: Input should be greater than 0"):
        Settings.load(lease_s=0)
