"""From a job's events to the messages that a client gets, each once. Pure: no network, no time."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from producer.events import End, Event, Restart, Tokens, Truncated
from producer.gateway import failures
from producer.gateway.failures import Failure
from protocol.errors import InvalidRequest
from protocol.frames import id_of, parse_position
from protocol.handle import Handle
from protocol.messages import Outcome
from protocol.wire import JsonObject, dumps

DONE = b"[DONE]"
Style = Literal["openai", "fleet"]
"""`openai`: nothing that its SDK can't read. `fleet`: also events named `restart`, `truncated` and `reconnect`."""
# A frame may hold several chunks: `7-3.2` are the first two of them.
_ID = re.compile(r"(?P<frame>[0-9]{1,18}-[0-9]{1,18})(?:\.(?P<part>[0-9]{1,6}))?\Z")
PLACE = r"^[0-9]{1,18}-[0-9]{1,18}(\.[0-9]{1,6})?$"
"""The same for those who read the gateway's page."""


@dataclass(frozen=True, slots=True)
class Message:
    """One event for the client."""

    data: bytes
    """JSON, or `DONE`."""
    id: str = ""
    """Goes on after it; empty where the place before still holds."""
    name: str = ""
    """Empty: one of OpenAI's own."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a client stands: after a frame, and after so many chunks of the next one."""

    after: str = ""
    frame: str = ""
    """The frame of which it has a part."""
    part: int = 0

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Read the `id` of a message; empty: nothing was seen.

        Raises:
            InvalidRequest: it is none.
        """
        if not text:
            return cls()
        match = _ID.match(text)
        if match is None:
            raise InvalidRequest("after: it reads ATTEMPT-NUMBER, as the events' ids do")
        if match["part"] is None:
            return cls(match["frame"])
        attempt, seq = parse_position(match["frame"])
        return cls(id_of((attempt, max(0, seq - 1))), match["frame"], int(match["part"]))


@dataclass(slots=True)
class Relay:
    """What one client is told of one job."""

    handle: Handle
    style: Style = "fleet"
    usage: bool = True
    """Whether the client gets the chunk with the usage."""
    cursor: Cursor = field(default_factory=Cursor)
    place: str = ""
    """The last id that was told."""
    over: bool = False
    """Nothing follows."""

    def take(self, event: Event) -> list[Message]:
        """The messages of one event."""
        match event:
            case Tokens():
                lost = self._skipped(event)
                return lost if self.over else [*lost, *self._tokens(event)]
            case Restart():
                return self._lost("restart", {"reason": event.reason}, failures.restarted(self.handle))
            case Truncated():
                return self._lost("truncated", {}, failures.truncated(self.handle))
            case End():
                return self._end(event.id, event.outcome)

    def closing(self) -> list[Message]:
        """This gateway closes; the job goes on, and so may the client, elsewhere."""
        self.over = True
        path = f"{failures.path_of(self.handle)}/stream"
        header = f" with Last-Event-ID: {self.place}" if self.place else ""
        told = f"this gateway closes, the job goes on: GET {path}{header}"
        if self.style == "openai":
            return [_error(Failure(503, failures.SERVER, "gateway_closing", told))]
        return [Message(dumps({"path": path, "after": self.place}), name="reconnect")]

    def broken(self, failure: Failure) -> list[Message]:
        """The job can't be followed any more."""
        self.over = True
        return [_error(failure)]

    def _tokens(self, event: Tokens) -> Iterator[Message]:
        chunks = _apart(event.chunks)
        seen = self.cursor.part if event.id == self.cursor.frame else 0
        self.cursor = Cursor()
        for number, chunk in enumerate(chunks, 1):
            shown = self._shown(chunk)
            if number > seen and shown is not None:
                self.place = event.id if number == len(chunks) else f"{event.id}.{number}"
                yield Message(dumps(shown), self.place)

    def _skipped(self, event: Tokens) -> list[Message]:
        """A client had the beginning of a frame that is no more: what it has counts no more."""
        if self.cursor.part and event.id != self.cursor.frame:
            return self.take(Restart("another attempt begins from the start"))
        return []

    def _shown(self, chunk: JsonObject) -> JsonObject | None:
        if self.usage or "usage" not in chunk:
            return chunk
        rest = {name: value for name, value in chunk.items() if name != "usage"}
        return rest if chunk.get("choices") else None

    def _lost(self, name: str, data: JsonObject, failure: Failure) -> list[Message]:
        self.cursor = Cursor()
        if self.style == "fleet":
            return [Message(dumps(data), name=name)]
        self.over = True
        return [_error(failure), Message(DONE)]

    def _end(self, frame_id: str, outcome: Outcome) -> list[Message]:
        self.over, self.place = True, frame_id
        done = Message(DONE, frame_id)
        if failure := failures.failure_of_end(outcome):
            return [_error(failure, frame_id), done]
        if (outcome.status_code or 200) >= 400:
            return [Message(dumps(failures.engine_body(outcome)), frame_id), done]
        return [done]


def _error(failure: Failure, frame_id: str = "") -> Message:
    return Message(dumps(failure.body), frame_id)


def _apart(chunks: Sequence[JsonObject]) -> list[JsonObject]:
    """Chunks with the usage in one of its own, as OpenAI sends it: a stored response has it beside its choices."""
    found: list[JsonObject] = []
    for chunk in chunks:
        choices = chunk.get("choices") or ()
        if chunk.get("usage") and any(isinstance(one, dict) and one.get("finish_reason") for one in choices):
            found.append({name: value for name, value in chunk.items() if name != "usage"})
            found.append({**chunk, "choices": []})
        else:
            found.append(chunk)
    return found
