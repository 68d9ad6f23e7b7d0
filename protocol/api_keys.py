"""API keys: what stands in Redis about each, and never the key itself."""

import hashlib
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from protocol import keys
from protocol.call import Call
from protocol.limits import NO_LIMITS, Limits
from protocol.messages import Message
from protocol.states import Priority

MAX_NOTE = 256
PREFIX = "tf-"
"""How every key begins: so that scanners for leaked secrets, and people, know one when they see it."""
_SECRET_BYTES = 32
_ID_CHARS = 16


class ApiKey(Message):
    """What a key may, and how people tell it from others."""

    tenant: str
    """Whose jobs it submits and sees."""
    priorities: tuple[Priority, ...] = tuple(Priority)
    models: tuple[str, ...] = ()
    """The models that it may ask for; empty: all."""
    limits: Limits = NO_LIMITS
    operator: bool = False
    """Sees all tenants' jobs and batches on the live page, though not what they ask and answer."""
    created_ms: int = 0
    """In Redis's time, as `revoked_ms`."""
    revoked_ms: int = 0
    """0 while the key is good."""
    last_four: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class NamedKey:
    """A key's record with the key's name in Redis."""

    digest: str
    record: ApiKey

    @property
    def id(self) -> str:
        """What people, logs and buckets call it: the head of its hash, of which nothing leads back to the key."""
        return self.digest[:_ID_CHARS]


def new_secret() -> str:
    """A new key: 256 random bits. It is shown once, and only its hash is kept."""
    return PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def digest_of(secret: str) -> str:
    """The name that a key has in Redis: its SHA-256 in hex.

    One plain hash is enough. Slow and salted hashes protect what people think up, of which there is too little to try;
    of 256 random bits nobody tries a part worth the name, and no two keys are the same. Nor does looking the hash up
    tell by its time how near a guess was: who guesses does not choose how its hash begins.
    """
    # What a header brings need be no Unicode text.
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def find(digest: str) -> Call[ApiKey | None]:
    """The record of a key, revoked or not; None where there is none."""
    return Call(("HGET", keys.API_KEYS, digest), lambda reply: ApiKey.model_validate_json(reply) if reply else None)


def count() -> Call[int]:
    """How many keys were ever created, the revoked ones too."""
    return Call(("HLEN", keys.API_KEYS), int)


def everyone() -> Call[list[NamedKey]]:
    """All keys, the oldest first; what can't be read is left out."""
    return Call(("HGETALL", keys.API_KEYS), _everyone)


def _everyone(reply: Mapping[bytes, bytes]) -> list[NamedKey]:
    found = []
    for digest, record in reply.items():
        with suppress(ValueError):
            found.append(NamedKey(digest.decode(), ApiKey.model_validate_json(record)))
    return sorted(found, key=lambda key: (key.record.created_ms, key.digest))


def save(key: NamedKey) -> Call[bool]:
    """Write a key's record: a new one, or in place of its old one."""
    return Call(("HSET", keys.API_KEYS, key.digest, key.record.model_dump_json(exclude_defaults=True)), bool)
