"""The input of a batch that runs: rows are read from it where the ledger says that they stand."""

import os
from pathlib import Path

from producer.batch.records import Todo
from protocol import wire
from protocol.errors import InputChanged, InvalidRequest, SetupError
from protocol.wire import JsonObject


class RowReader:
    """Reads the rows of a file that was validated."""

    def __init__(self, path: str | Path) -> None:
        """Open it.

        Raises:
            SetupError: that can't be done.
        """
        self._path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise SetupError(f"{path} can't be opened: {error.strerror}") from None

    def body(self, row: Todo) -> JsonObject:
        """A row's request body.

        Raises:
            InputChanged: what stands there now is another row, or none: somebody wrote to it while it ran.
        """
        try:
            found = wire.loads(os.pread(self._fd, row.length, row.start))
            if found.get("custom_id") == row.custom_id and isinstance(body := found["body"], dict):
                return body
        except (OSError, InvalidRequest, KeyError, AttributeError):
            pass
        raise InputChanged(
            f"{self._path} was written to while its rows ran", "Restore it, then --resume (resume=True)."
        )

    def close(self) -> None:
        """Let go of it."""
        os.close(self._fd)
