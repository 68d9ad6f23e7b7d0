"""structlog set-up. Events are named by what happened; prompts and completions never stand in them."""

import logging
import sys
from contextlib import AbstractContextManager
from pathlib import PurePath
from traceback import extract_tb
from typing import Literal

import structlog

from protocol.handle import Handle

Format = Literal["auto", "json", "console"]
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(level: str = "info", style: Format = "auto") -> None:
    """Log to stderr: JSON lines, or coloured text in a terminal."""
    pretty = style == "console" or (style == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor
    renderer = (
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            pad_event_to=24,
            # The default one shows local variables, which hold prompts.
            exception_formatter=structlog.dev.plain_traceback,
        )
        if pretty
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if pretty else "iso", utc=not pretty),
            structlog.processors.StackInfoRenderer(),
            structlog.dev.set_exc_info if pretty else structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.lastResort = _Foreign(logging.WARNING)


class _Foreign(logging.Handler):
    """Libraries log by the standard module; without a handler of its own each line would come here as it is.

    Their texts quote what they were given: a header, an exception with the prompt in it. Only where and what is told.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Tell the line's library, level and place."""
        told = {"library": record.name, "at": f"{PurePath(record.pathname).name}:{record.lineno}"}
        kind, _, trace = record.exc_info or (None, None, None)
        if kind:
            told["kind"] = kind.__name__
        if frames := extract_tb(trace)[-1:]:
            told["raised_at"] = f"{PurePath(frames[0].filename).name}:{frames[0].lineno}"
        log = get_logger("library")
        if record.levelno >= logging.ERROR:
            log.error("library_failed", **told)
        else:
            log.warning("library_told", **told)


def job_lines(handle: Handle, attempt: int) -> AbstractContextManager[None]:
    """While it is entered, each line of this task, whoever writes it, names the job and the attempt."""
    return structlog.contextvars.bound_contextvars(job=str(handle), attempt=attempt)


def silent() -> structlog.typing.FilteringBoundLogger:
    """A logger that says nothing, for whoever looks on."""
    nobody: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
        None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
    )
    return nobody


def get_logger(role: str) -> structlog.typing.FilteringBoundLogger:
    """A logger whose every line names the role."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(role=role)
    return logger
