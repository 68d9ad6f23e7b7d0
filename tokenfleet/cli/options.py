"""Options that commands share, and the settings that come of them: flags, then environment, then file."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from protocol.handle import Handle
    from protocol.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])

_FLAGS = "tokenfleet.flags"
_JSON = "tokenfleet.json"


def _remember_flag(context: click.Context, parameter: click.Parameter, value: str | int | None) -> None:
    if value is not None:
        if parameter.name == "redis_url":
            _refuse_secret(str(value))
        context.meta.setdefault(_FLAGS, {})[parameter.name] = value


def _refuse_secret(url: str) -> None:
    """A command line is seen by everyone on the machine."""
    if "password=" in url or ":" in url.partition("://")[2].rpartition("@")[0]:
        hint = "Put it into TOKENFLEET_REDIS_PASSWORD, or into the file that TOKENFLEET_REDIS_PASSWORD_FILE names."
        raise click.UsageError(f"--redis-url: a password may not stand on the command line. {hint}")


def _remember_json(context: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    del parameter
    context.meta[_JSON] = value or context.meta.get(_JSON, False)


def shared_options(command: Command) -> Command:
    """Add `--redis-url` and the logging options; `load_settings` reads them."""
    return click.option(
        "--redis-url",
        metavar="URL",
        help="Where Redis listens. The password comes from TOKENFLEET_REDIS_PASSWORD, or …_PASSWORD_FILE.",
        callback=_remember_flag,
        expose_value=False,
    )(logging_options(command))


def logging_options(command: Command) -> Command:
    """Add `--log-level` and `--log-format`; `load_settings` reads them."""
    level = click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        help="What is logged to stderr.",
        callback=_remember_flag,
        expose_value=False,
    )
    style = click.option(
        "--log-format",
        type=click.Choice(["auto", "json", "console"]),
        help="auto: coloured text in a terminal, JSON elsewhere.",
        callback=_remember_flag,
        expose_value=False,
    )
    return level(style(command))


def metrics_options(command: Command) -> Command:
    """Add `--metrics-port` and `--metrics-host`; `load_settings` reads them."""
    port = click.option(
        "--metrics-port",
        type=click.IntRange(0, 65_535),
        help="Answer Prometheus there, at /metrics; 0, the default, nowhere.  [env: TOKENFLEET_METRICS_PORT]",
        callback=_remember_flag,
        expose_value=False,
    )
    host = click.option(
        "--metrics-host",
        help="On this address.  [default: 127.0.0.1]",
        callback=_remember_flag,
        expose_value=False,
    )
    return port(host(command))


def store_option(command: Command) -> Command:
    """Add `--store`; `load_settings` reads it."""
    return click.option(
        "--store",
        metavar="DIR",
        help="The folder of batches' files, which the batch runners have too.  [env: TOKENFLEET_STORE]",
        callback=_remember_flag,
        expose_value=False,
    )(command)


def json_option(command: Command) -> Command:
    """Add `--json`; `wants_json` reads it."""
    return click.option(
        "--json",
        is_flag=True,
        is_eager=True,
        help="Print JSON on stdout, one object a line.",
        callback=_remember_json,
        expose_value=False,
    )(command)


def wants_json() -> bool:
    """Whether the running command was asked for JSON."""
    return bool(click.get_current_context().meta.get(_JSON, False))


def job_handle(text: str) -> "Handle":
    """The type of an argument that names a job.

    Raises:
        InvalidId: the text is no handle.
    """
    from protocol.handle import Handle

    return Handle.parse(text)


def load_settings(**flags: object) -> "Settings":
    """Settings of the running command, with logging set up; `flags` are options of its own, None when not given.

    Raises:
        SetupError: a value is out of range, or the file can't be read.
    """
    from protocol import log
    from protocol.settings import Settings

    settings = Settings.load(**click.get_current_context().meta.get(_FLAGS, {}), **flags)
    log.configure(settings.log_level, settings.log_format)
    return settings
