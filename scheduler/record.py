"""Writes the rounds that decided something to a file, one JSON line each, up to a size."""

import os
from pathlib import Path

from protocol.errors import SetupError
from protocol.handle import Shard
from protocol.log import get_logger
from protocol.wire import JsonObject, dumps
from scheduler.policy.decision import Decision
from scheduler.policy.recording import Encoder, Head
from scheduler.policy.view import FleetView
from scheduler.rules import Rules

_log = get_logger("scheduler")


class Recording:
    """A file that all shards of a scheduler write to. What an earlier run wrote there is kept, and counts.

    Args:
        path: where; only its owner may read it.
        limit_mb: nothing is written beyond it.

    Raises:
        SetupError: the file can't be written.
    """

    def __init__(self, path: Path, limit_mb: int) -> None:
        self._path, self._limit = path, limit_mb * 1_000_000
        self._file: int | None = None
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._size = os.fstat(self._file).st_size
        except OSError as error:
            raise SetupError(f"{path} can't be written: {error.strerror}", "Name another with --record.") from None

    def of(self, shard: Shard, rules: Rules) -> "ShardRecorder":
        """The recorder of one term of a shard."""
        return ShardRecorder(self, Encoder(Head(str(shard), rules.policy_name, rules.targets, rules.window)))

    def write(self, line: JsonObject) -> None:
        """Append a line, unless the file is full or can no longer be written: that is told once."""
        if self._file is None:
            return
        data = dumps(line) + b"\n"
        if self._size + len(data) > self._limit:
            _log.warning("recording_full", file=str(self._path), size_mb=round(self._size / 1e6, 1))
            self.close()
            return
        try:
            # One call for the whole line: what is written by appending is never torn by another writer.
            os.write(self._file, data)
        except OSError as error:
            _log.warning("recording_failed", file=str(self._path), why=error.strerror)
            self.close()
        else:
            self._size += len(data)

    def close(self) -> None:
        """Nothing more is written."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class ShardRecorder:
    """Writes one term's rounds."""

    def __init__(self, recording: Recording, encoder: Encoder) -> None:
        self._recording, self._encoder, self._begun = recording, encoder, False

    def after(self, view: FleetView, now_ms: float, decision: Decision) -> None:
        """A round is over; one that decided nothing leaves no line."""
        if not (decision.assignments or decision.park or decision.refusals):
            return
        if not self._begun:
            self._recording.write(self._encoder.head())
            self._begun = True
        self._recording.write(self._encoder.round(view, now_ms, decision))
