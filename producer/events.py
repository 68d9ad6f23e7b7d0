"""What a follower of a job sees."""

from dataclasses import dataclass

from protocol.messages import Outcome, chunk_text
from protocol.wire import JsonObject


@dataclass(frozen=True, slots=True)
class Tokens:
    """A piece of the answer."""

    id: str
    """Where the follower stands now: give it as `after` to go on from here. Fit for an SSE `id`."""
    chunks: tuple[JsonObject, ...]
    """OpenAI chunk objects."""

    @property
    def text(self) -> str:
        """What the first choice says in this piece."""
        return "".join(chunk_text(chunk) for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class Restart:
    """The text begins again: forget what came before."""

    reason: str


@dataclass(frozen=True, slots=True)
class Truncated:
    """Tokens are missing here, because the log no longer has them; the outcome at the end has the whole text."""


@dataclass(frozen=True, slots=True)
class End:
    """The job ended; nothing follows."""

    id: str
    outcome: Outcome


Event = Tokens | Restart | Truncated | End


def whole(frame_id: str, outcome: Outcome) -> Tokens | None:
    """The stored response as one piece, for who has seen nothing of it; None when there is no response to show."""
    body = outcome.body or {}
    if outcome.error or not body.get("choices"):
        return None
    choices = [_as_delta(choice) for choice in body["choices"]]
    kind = "chat.completion.chunk" if "message" in body["choices"][0] else body.get("object")
    return Tokens(frame_id, ({**body, "object": kind, "choices": choices},))


def _as_delta(choice: JsonObject) -> JsonObject:
    """A choice of a response as it looks in a chunk; completions look the same in both."""
    if "message" not in choice:
        return choice
    delta = dict(choice["message"])
    if delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(delta["tool_calls"])]
    return {**{name: value for name, value in choice.items() if name != "message"}, "delta": delta}
