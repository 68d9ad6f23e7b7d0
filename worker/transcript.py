"""What an engine has said in one attempt, from its chunks to the full response."""

from collections.abc import Sequence

from protocol.messages import Endpoint
from protocol.wire import JsonObject
from worker.assemble import assemble
from worker.engine.base import EngineFault
from worker.engine.openai_rules import speaks
from worker.gathered import Gathered

MOST_CHUNKS = 500_000
"""More than any model's context holds: such a stream has no end."""


class Transcript:
    """Holds an answer in the space of its text, not of its chunks.

    Attributes:
        tokens: how many this attempt has brought: one for each chunk that speaks, where no more are known.
    """

    def __init__(self, endpoint: Endpoint, before: Sequence[JsonObject] = ()) -> None:
        """Begin after what earlier attempts have said."""
        self._endpoint, self._before = endpoint, before
        self._chunks = Gathered()
        self.tokens = 0

    @property
    def goes_on(self) -> bool:
        """Whether earlier attempts have said something of it."""
        return bool(self._before)

    def add(self, chunk: JsonObject, tokens: int = 0) -> None:
        """Take the next chunk, and how many tokens it is where that is known.

        Raises:
            EngineFault: there are more than any answer has.
        """
        self._chunks.add(chunk)
        self.tokens += tokens or speaks(chunk)
        if self._chunks.count > MOST_CHUNKS:
            raise EngineFault(f"the engine's answer has more than {MOST_CHUNKS} parts")

    def partial(self) -> JsonObject | None:
        """What came so far, in the shape of a response whose choices have no `finish_reason`; None: nothing."""
        chunks = [*self._before, *self._chunks]
        return assemble(self._endpoint, chunks) if chunks else None

    def response(self) -> JsonObject:
        """The full OpenAI response object.

        Raises:
            EngineFault: the engine said nothing.
        """
        chunks = [*self._before, *self._chunks]
        if not any(self._endpoint == "/v1/embeddings" or chunk.get("choices") for chunk in chunks):
            raise EngineFault("the engine gave no answer")
        return assemble(self._endpoint, chunks)

    def own(self) -> list[JsonObject]:
        """What this attempt has said."""
        return self._chunks.merged()
