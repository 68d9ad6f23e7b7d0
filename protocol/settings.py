"""Settings. One order of precedence: command-line flags, environment, file, default."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import BeforeValidator, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from protocol.errors import SetupError
from protocol.tls import with_files

ENV_PREFIX = "TOKENFLEET_"
CONFIG_VARIABLE = "TOKENFLEET_CONFIG"
DEFAULT_FILE = "tokenfleet.toml"
Admission = Literal["refuse", "deadline", "best_effort"]
OptionalPath = Annotated[Path | None, BeforeValidator(lambda path: path or None)]
"""Empty: none, so that the environment can take back what the file says."""


class Settings(BaseSettings):
    """All settings of all roles; in the environment as `TOKENFLEET_<NAME>`, in the file as `name = value`.

    `TOKENFLEET_<NAME>_FILE` names a file that holds nothing but the value.
    """

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="ignore", frozen=True)

    redis_url: str = Field(default="redis://127.0.0.1:6379/0", repr=False)
    """`rediss://` for TLS: the server's certificate is always checked."""
    redis_password: str = Field(default="", repr=False)
    """Takes the place of the one in the URL."""
    redis_ca: OptionalPath = None
    """The certificate of the CA that signed Redis's; the system's CAs by default."""
    redis_cert: OptionalPath = None
    redis_key: OptionalPath = None
    """Our own certificate, where Redis asks for one, and its key."""
    engine_api_key: str = Field(default="", repr=False)
    """Of the server that a worker attaches to."""
    redis_patience_s: float = Field(default=30.0, ge=0)
    """How long to wait for a Redis that does not answer."""
    tenant: str = Field(default="", pattern=r"^[a-z0-9_-]{0,64}$")
    """The only tenant that a client acts for: other tenants' jobs are unknown to it. Empty: it acts for all of them."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "console"] = "auto"
    """`auto`: coloured in a terminal, JSON elsewhere."""
    metrics_port: int = Field(default=0, ge=0, le=65_535)
    """Where a scheduler, worker or batch runner answers Prometheus's `GET /metrics`; 0: nowhere."""
    metrics_host: str = Field(default="127.0.0.1", min_length=1)

    store: OptionalPath = None
    """The folder of batches' files, which producers and batch runners share."""
    batch_keep_s: float = Field(default=30 * 86_400.0, gt=0)
    """How long ended batches are kept, with what they read and wrote; and files that no batch has used."""
    batch_lease_s: float = Field(default=5.0, ge=0.5)
    """A batch whose runner is silent for so long goes to another."""
    webhook_url: str = Field(default="", pattern=r"^(https?://\S+)?$")
    """Where the ends of batches are told. The operator's choice, not a tenant's, so it may be a private address."""
    webhook_secret: str = Field(default="", repr=False)
    """What the webhook's calls are signed with: `whsec_` and base64, or any text."""
    webhook_retry_s: float = Field(default=5.0, gt=0)
    """A call that failed is repeated after so long, then after four times as long, and so on."""

    deadline_s: float = Field(default=86_400.0, gt=0)
    """When a job that names no deadline expires, from its submission."""
    keep_s: float = Field(default=86_400.0, gt=0)
    """How long a finished job's result is kept."""
    delete_on_read: bool = False
    """Whether a job is forgotten as soon as its result has been read once."""
    max_body_bytes: int = Field(default=2 * 1024 * 1024, gt=0)
    durable_timeout_s: float = Field(default=3.0, gt=0, le=4)
    """How long a durable submit waits for the disk, and then for replicas; shorter than any call may take."""
    durable_replicas: int = Field(default=0, ge=0)
    """So many replicas must have a durable submit; 0: one where any is connected, and behind Sentinel always."""

    limit_high: int = Field(default=10_000, gt=0)
    limit_medium: int = Field(default=1_000_000, gt=0)
    limit_low: int = Field(default=1_000_000, gt=0)
    """Jobs waiting in each lane; one tenant may fill half of it."""
    quota_jobs: int = Field(default=0, ge=0)
    """So many jobs of one tenant may wait in all lanes of a shard; 0: no limit but half of a lane."""
    quota_tokens: int = Field(default=0, ge=0)
    """So many tokens one tenant may submit to a shard in a minute, prompts and outputs as estimated; 0: no limit."""
    target_high_s: float = Field(default=0.5, gt=0)
    target_medium_s: float = Field(default=60.0, gt=0)
    target_low_s: float = Field(default=600.0, gt=0)
    """How long a job of each priority should wait at most for its start."""
    target_token_ms: float = Field(default=50.0, gt=0)
    """How long each token of an online stream may take; twice as long for prompts of more than 8,192 tokens."""
    admission_high: Admission = "deadline"
    admission_medium: Admission = "deadline"
    admission_low: Admission = "deadline"
    """Who is refused at once, with the predicted wait: jobs that can't meet their target or deadline (`refuse`), those
    that can't meet their deadline (`deadline`), or nobody (`best_effort`)."""
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

    @property
    def store_url(self) -> str:
        """`redis_url` with the password and the files of certificates that stand beside it.

        Raises:
            SetupError: the URL is malformed.
        """
        try:
            parts = urlsplit(self.redis_url)
            if self.redis_password:
                user, _, host = parts.netloc.rpartition("@")
                secret = f"{user.partition(':')[0]}:{quote(self.redis_password, safe='')}"
                parts = parts._replace(netloc=f"{secret}@{host}")
            return with_files(urlunsplit(parts), self.redis_ca, self.redis_cert, self.redis_key)
        except ValueError:
            raise SetupError("malformed Redis URL", "Use redis://HOST:PORT/DB, rediss://… or unix://….") from None

    def for_url(self, url: str) -> Self:
        """For a Redis at `url` as it is: password and certificates that stand beside `redis_url` are not for it."""
        beside = {"redis_password": "", "redis_ca": None, "redis_cert": None, "redis_key": None}
        return self.model_copy(update={"redis_url": url, **beside})

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
        """Flags, environment, the files that the environment names, the settings' own file."""
        del dotenv_settings, file_secret_settings
        path = os.environ.get(CONFIG_VARIABLE, DEFAULT_FILE)
        if CONFIG_VARIABLE in os.environ and not Path(path).is_file():
            raise SetupError(f"{CONFIG_VARIABLE} names a file that is not there: {path}")
        return init_settings, env_settings, _NamedFiles(settings_cls), TomlConfigSettingsSource(settings_cls, path)


class _NamedFiles(PydanticBaseSettingsSource):
    """`TOKENFLEET_<NAME>_FILE` names a file that holds the value: so a secret stands in no environment."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """The file's text without the white space around it; None where no file is named."""
        del field
        path = os.environ.get(f"{ENV_PREFIX}{field_name.upper()}_FILE", "")
        try:
            return (Path(path).read_text(encoding="utf-8").strip() if path else None), field_name, False
        except (OSError, UnicodeDecodeError):
            raise SetupError(f"{ENV_PREFIX}{field_name.upper()}_FILE names a file that can't be read: {path}") from None

    def __call__(self) -> dict[str, Any]:
        """All that are named."""
        found = {name: self.get_field_value(field, name)[0] for name, field in self.settings_cls.model_fields.items()}
        return {name: value for name, value in found.items() if value is not None}
