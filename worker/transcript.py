"""What an engine has said in one attempt, from its chunks to the full response."""

from collections.abc import Sequence

from protocol.messages import Endpoint
from protocol.wire import JsonObject
from worker.assemble import assemble, merge_chunks
from worker.engine.base import EngineFault
from worker.engine.openai_rules import speaks

MERGE_EVERY = 64
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
        self._chunks: list[JsonObject] = []
        self._merge_at = MERGE_EVERY
        self._merged = 0
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
        self._chunks.append(chunk)
        self.tokens += tokens or speaks(chunk)
        if len(self._chunks) >= self._merge_at:
            self._merge()

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
        if not chunks:
            raise EngineFault("the engine gave no answer")
        return assemble(self._endpoint, chunks)

    def own(self) -> list[JsonObject]:
        """What this attempt has said."""
        return merge_chunks(self._chunks)

    def _merge(self) -> None:
        before = len(self._chunks)
        self._chunks = merge_chunks(self._chunks)
        self._merged += before - len(self._chunks)
        self._merge_at = len(self._chunks) + MERGE_EVERY
        if self._merged + len(self._chunks) > MOST_CHUNKS:
            raise EngineFault(f"the engine's answer has more than {MOST_CHUNKS} parts")
