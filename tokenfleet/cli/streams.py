"""Stdin, stdout and stderr as they may be: closed, full, of another encoding, or without a reader."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper

import click

from protocol.errors import InvalidRequest, OutputFailed, TooLarge
from tokenfleet.cli.exits import Exit, exit_of
from tokenfleet.cli.output import print_error

MOST_INPUT_BYTES = 64 * 1024 * 1024
"""More than any body has: who writes without end is stopped here."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class Unread(Exception):
    """Nobody reads what is printed any more."""


@contextmanager
def noticing() -> Iterator[None]:
    """Tell a closed pipe from other failures before click does, which ends with another code then.

    Raises:
        Unread: a write found the pipe closed.
    """
    try:
        yield
    except BrokenPipeError:
        raise Unread from None


@contextmanager
def guarded() -> Iterator[None]:
    """Print what the encoding lacks escaped, and end as Unix commands do when what they print can't be written.

    Raises:
        SystemExit: nobody reads what is printed any more, or the disk is full.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        yield
        if sys.stdout:
            sys.stdout.flush()
    except (BrokenPipeError, Unread):
        let_go()
        raise SystemExit(Exit.CLOSED_PIPE) from None
    except OSError as error:
        if error.errno not in _FULL:
            raise
        failure = OutputFailed(f"the output can't be written: {error.strerror}")
        with suppress(OSError):
            print_error(failure, as_json=False)
        let_go()
        raise SystemExit(exit_of(failure)) from None


def let_go() -> None:
    """What is still in the buffers goes nowhere: at its end Python would try to write it once more, and complain."""
    with suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - the null device is no path
        for stream in (sys.stdout, sys.stderr):
            if stream:
                os.dup2(nowhere.fileno(), stream.fileno())


def read_stdin() -> bytes:
    """All of stdin.

    Raises:
        InvalidRequest: it is closed.
        TooLarge: it has over 64 MiB.
    """
    if sys.stdin is None:
        raise InvalidRequest("stdin is closed")
    data = sys.stdin.buffer.read(MOST_INPUT_BYTES + 1)
    if len(data) > MOST_INPUT_BYTES:
        raise TooLarge(f"stdin has more than {MOST_INPUT_BYTES} bytes")
    return data


class InputFile(click.Path):
    """The type of an option that names a file to read, or `-` for stdin; yields its bytes."""

    name = "filename"

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, readable=True, allow_dash=True)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        """Read it."""
        if isinstance(value, bytes):
            return value
        path = super().convert(value, param, ctx)  # type: ignore[arg-type]  # click's own union of names
        if path == "-":
            return read_stdin()
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - a name that click has checked
                data = file.read(MOST_INPUT_BYTES + 1)
        except OSError as error:
            self.fail(f"{click.format_filename(path)} can't be read: {error.strerror}", param, ctx)
        if len(data) > MOST_INPUT_BYTES:
            raise TooLarge(f"the file has more than {MOST_INPUT_BYTES} bytes")
        return data
