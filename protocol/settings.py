"""Settings. One order of precedence: command-line flags, environment, file, default."""

import os
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from protocol.errors import SetupError

ENV_PREFIX = "TOKENFLEET_"
CONFIG_VARIABLE = "TOKENFLEET_CONFIG"
DEFAULT_FILE = "tokenfleet.toml"


class Settings(BaseSettings):
    """All settings of all roles; in the environment as `TOKENFLEET_<NAME>`, in the file as `name = value`."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="ignore", frozen=True)

    redis_url: str = "redis://127.0.0.1:6379/0"
    redis_patience_s: float = Field(default=30.0, ge=0)
    """How long to wait for a Redis that does not answer."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "console"] = "auto"
    """`auto`: coloured in a terminal, JSON elsewhere."""

    deadline_s: float = Field(default=86_400.0, gt=0)
    """When a job that names no deadline expires, from its submission."""
    keep_s: float = Field(default=86_400.0, gt=0)
    """How long a finished job's result is kept."""
    max_body_bytes: int = Field(default=2 * 1024 * 1024, gt=0)
    durable_timeout_s: float = Field(default=3.0, gt=0, le=4)
    """How long a durable submit waits for the disk, and then for replicas; shorter than any call may take."""
    durable_replicas: int = Field(default=0, ge=0)
    """So many replicas must have a durable submit; 0: one where any is connected."""

    limit_high: int = Field(default=10_000, gt=0)
    limit_medium: int = Field(default=1_000_000, gt=0)
    limit_low: int = Field(default=1_000_000, gt=0)
    """Jobs waiting in each lane; one tenant may fill half of it."""
    target_high_s: float = Field(default=0.5, gt=0)
    target_medium_s: float = Field(default=60.0, gt=0)
    target_low_s: float = Field(default=600.0, gt=0)
    """How long a job of each priority should wait at most for its start."""
    target_token_ms: float = Field(default=50.0, gt=0)
    """How long each token of an online stream may take; twice as long for prompts of more than 8,192 tokens."""
    admission_high: Literal["refuse", "best_effort"] = "best_effort"
    admission_medium: Literal["refuse", "best_effort"] = "best_effort"
    admission_low: Literal["refuse", "best_effort"] = "best_effort"
    """What becomes of a job whose target can't be met: refused at once with the predicted wait, or it waits."""
    window_s: float = Field(default=0.2, ge=0)
    """The longest batch window; it gathers offline jobs only, and only while there is something to gain."""
    policy: str = "predictive"
    scale: Literal["auto", "off"] = "auto"
    """`auto`: the scheduler promotes standby workers when online jobs would wait too long, and puts them back."""

    lease_s: float = Field(default=10.0, gt=0)
    """A worker that is silent for so long loses its jobs."""
    beat_s: float = Field(default=0.2, gt=0)
    """How often a worker renews its lease and publishes its load at least."""
    report_s: float = Field(default=0.05, ge=0)
    """How often it does so at most, while jobs come, bring their first tokens and end."""
    lead_s: float = Field(default=2.0, gt=0)
    """A dispatcher that is silent for so long loses the lead."""
    tick_s: float = Field(default=0.5, gt=0)
    drain_s: float = Field(default=30.0, ge=0)
    """How long a worker that was told to stop may finish what it runs."""
    frame_s: float = Field(default=0.025, ge=0)
    """Tokens after a job's first are gathered for so long."""
    time_limit_s: float = Field(default=600.0, gt=0)
    """How long an attempt may run when its job names no limit."""
    engine_stall_s: float = Field(default=120.0, ge=0)
    """An engine that has requests and gets on with none for so long is hung; 0 waits for ever."""
    max_tries: int = Field(default=3, ge=1)
    """Attempts that an engine may fail before the job fails."""

    @classmethod
    def load(cls, **flags: Any) -> Self:  # noqa: ANN401 - flags have the fields' types, checked here
        """Read all sources; flags that are None were not given.

        Raises:
            SetupError: a value is out of range, or the file can't be read.
        """
        given = {name: value for name, value in flags.items() if value is not None}
        try:
            return cls(**given)
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise SetupError(f"invalid settings: {problems}") from None
        except ValueError as error:
            raise SetupError(f"the settings file can't be read: {error}") from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, environment, file."""
        del dotenv_settings, file_secret_settings
        path = os.environ.get(CONFIG_VARIABLE, DEFAULT_FILE)
        if CONFIG_VARIABLE in os.environ and not Path(path).is_file():
            raise SetupError(f"{CONFIG_VARIABLE} names a file that is not there: {path}")
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=path)
