"""Decides what of a job's frames a follower delivers: each once, in order. Pure: no Redis, no time."""

from dataclasses import dataclass

from producer.events import Restart, Tokens, Truncated
from protocol.frames import parse_position
from protocol.messages import Frame
from protocol.reads import Standing
from protocol.states import State

NEW_ATTEMPT = "another attempt begins from the start"
BEHIND = "the job began anew, or the store lost its last moments"


@dataclass(frozen=True, slots=True)
class Sealed:
    """The job has ended; `alone` when no frame of its last attempt was delivered: its result serves as one."""

    id: str
    alone: bool


Step = Tokens | Restart | Truncated | Sealed


@dataclass(slots=True)
class Place:
    """Where a follower stands: the last frame that it delivered, (0, 0) before the first."""

    attempt: int = 0
    seq: int = 0

    @classmethod
    def after(cls, frame_id: str) -> "Place":
        """The place of a follower that has seen the frame `frame_id`; empty: nothing yet.

        Raises:
            ValueError: it is no frame id.
        """
        return cls(*parse_position(frame_id)) if frame_id else cls()

    @property
    def position(self) -> tuple[int, int]:
        """(attempt, sequence number), as frames are ordered."""
        return self.attempt, self.seq

    def live(self, frame: Frame) -> list[Step] | None:
        """Take a frame from the channel; None when others are missing before it: read the log."""
        if frame.position <= self.position:
            return []
        return self._deliver(frame) if self._is_next(frame) else None

    def logged(self, frame: Frame) -> list[Step]:
        """Take a frame from the log; what is missing there is missing for good."""
        if frame.position <= self.position:
            return []
        return self._deliver(frame, missing=not self._is_next(frame))

    def rewind(self, standing: Standing, first: Frame | None = None) -> list[Step]:
        """Start over when the store is behind this place: it lost its last seconds, or the id was used anew.

        Or it was, and a later attempt has gone on from there: `first`, what the log has next, says from where.
        """
        is_ahead = self.position > (standing.attempt, standing.frames + 1)
        if not is_ahead and not (first and first.after and self.position > first.after):
            return []
        self.attempt = self.seq = 0
        return [Restart(BEHIND)]

    def unseal(self, sealed: Sealed) -> None:
        """The store has lost this end: where its seal was the last frame, another may come in its place."""
        if self.position == parse_position(sealed.id):
            self.seq -= 1

    def without_log(self, standing: Standing) -> list[Step]:
        """The job has ended and its log is gone, or never was."""
        end = Frame(standing.attempt, standing.frames + 1, seal=standing.state)
        if self.attempt != standing.attempt or self.seq == 0:
            restart = self._restart(standing.attempt, standing.state)
            if restart:
                # Should the store lose this end, what comes then is no continuation.
                self.attempt = self.seq = 0
            return [*restart, Sealed(end.id, alone=True)]
        missing = self.seq < standing.frames
        return [*([Truncated()] if missing else []), Sealed(end.id, alone=False)]

    def _is_next(self, frame: Frame) -> bool:
        if frame.attempt == self.attempt:
            return frame.seq == self.seq + 1
        return frame.after == self.position if frame.after else frame.seq == 1

    def _goes_on(self, frame: Frame) -> bool:
        """Whether it belongs to the text that was delivered, though frames between may be missing."""
        return frame.after is not None and frame.after[0] == self.attempt and self.seq <= frame.after[1]

    def _restart(self, attempt: int, seal: State | None) -> list[Step]:
        """Text of an older attempt counts no more, unless the newer one ended without any: then it is all there is."""
        replaced = self.seq > 0 and attempt != self.attempt and seal in (None, State.COMPLETED)
        return [Restart(NEW_ATTEMPT)] if replaced else []

    def _deliver(self, frame: Frame, *, missing: bool = False) -> list[Step]:
        steps = [] if self._goes_on(frame) else self._restart(frame.attempt, frame.seal)
        if missing:
            steps.append(Truncated())
        self.attempt, self.seq = frame.position
        ends = frame.seal is not None
        steps.append(Sealed(frame.id, alone=frame.seq == 1) if ends else Tokens(frame.id, frame.chunks))
        return steps
