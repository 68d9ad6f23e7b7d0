"""Limits of an API key, and the bucket in Redis that counts against them."""

from dataclasses import dataclass
from typing import Literal

from protocol.messages import Message, Tokens

LimitKind = Literal["requests", "tokens", "jobs", "bytes"]


class Limits(Message):
    """What one API key may at most; 0: no limit. Each shard of each pool counts for itself."""

    requests_a_minute: Tokens = 0
    """Submitted, whatever becomes of them; after a minute of none, as many at once."""
    tokens_a_minute: Tokens = 0
    """Prompts and outputs: as estimated when a job is submitted, and as the engine counted once it has ended."""
    jobs: Tokens = 0
    """Alive at once, waiting and running."""
    bytes: Tokens = 0
    """Of the bodies of its living jobs, in all: the memory that it takes in Redis. `requests_a_minute` bounds how many
    bytes come in a minute."""


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Bucket:
    """Whose counts a job goes to, and how high they may be."""

    key_id: str
    """The API key's id: of a-z, 0-9, `_` and `-`."""
    limits: Limits
