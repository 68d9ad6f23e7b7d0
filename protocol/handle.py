"""A job's full name, and the rules for the names in it."""

import re
from dataclasses import dataclass
from typing import Self

from protocol.errors import InvalidId

_NAME = re.compile(r"[a-z0-9_-]{1,64}\Z")
# Own ids must not be able to leave their key (`:`), change the slot (`{`, `}`) or act as a glob or a path.
_OWN_ID = re.compile(r"(?!\.+\Z)[A-Za-z0-9_.@=+~,-]{1,64}\Z")
# One spelling a number, so that two handles are equal when their texts are; and never too long for `int`.
_NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,8})\Z")


def is_name(text: str) -> bool:
    """Whether it may name a pool, a tenant or a reply stream."""
    return bool(_NAME.match(text))


def check_name(kind: str, value: object) -> str:
    """Return `value` if it may name a pool, a tenant, a worker or a reply stream.

    Raises:
        InvalidId: it has other characters than a-z, 0-9, `_`, `-`, or is not 1 to 64 long, or is no text.
    """
    if not isinstance(value, str) or not is_name(value):
        msg = f"invalid {kind}: use 1 to 64 of a-z, 0-9, '_' and '-'"
        raise InvalidId(msg)
    return value


def check_text(kind: str, value: object) -> str:
    """Return `value` if it may name a model or be a label: people's own words, which never stand in a key.

    Raises:
        InvalidId: it is no text of 1 to 256 characters, or has control characters or halves of them.
    """
    if not isinstance(value, str) or not 0 < len(value) <= 256 or not value.isprintable():
        raise InvalidId(f"invalid {kind}: use 1 to 256 printable characters")
    return value


def check_own_id(value: object) -> str:
    """Return `value` if it may be a job's own id.

    Raises:
        InvalidId: it has other characters than letters, digits and `_.@=+~,-`, dots alone, or is not 1 to 64 long, or
            is no text.
    """
    if not isinstance(value, str) or not _OWN_ID.match(value):
        msg = "invalid job id: use 1 to 64 letters, digits and any of _.@=+~,-"
        raise InvalidId(msg)
    return value


@dataclass(frozen=True, slots=True)
class Shard:
    """A pool's slice on one Redis slot."""

    pool: str
    number: int = 0

    def __str__(self) -> str:
        """`pool.number`, as in handles and hash tags."""
        return f"{self.pool}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `pool.number`; a bare `pool` means its shard 0.

        Raises:
            InvalidId: the text has another form.
        """
        pool, _, number = text.partition(".")
        if number and not _NUMBER.match(number):
            msg = f"invalid shard {text!r}: use POOL or POOL.NUMBER"
            raise InvalidId(msg)
        return cls(check_name("pool", pool), int(number or 0))


@dataclass(frozen=True, slots=True)
class Handle:
    """A job's full name, `<pool>.<shard>.<tenant>.<own id>`: finds its keys from anywhere."""

    shard: Shard
    tenant: str
    own_id: str

    def __str__(self) -> str:
        """The form that users pass around."""
        return f"{self.shard}.{self.tenant}.{self.own_id}"

    @property
    def ref(self) -> str:
        """`tenant:own id`, the job's name inside its shard."""
        return f"{self.tenant}:{self.own_id}"

    @classmethod
    def of(cls, shard: Shard, ref: str) -> Self:
        """The handle of the job that is called `ref` inside `shard`."""
        tenant, _, own_id = ref.partition(":")
        return cls(shard, tenant, own_id)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a handle.

        Raises:
            InvalidId: the text is no handle.
        """
        parts = text.split(".", 3)
        if len(parts) != 4 or not _NUMBER.match(parts[1]):
            msg = "invalid handle: it reads POOL.SHARD.TENANT.ID, as `submit` and x-request-id tell it"
            raise InvalidId(msg)
        pool, number, tenant, own_id = parts
        shard = Shard(check_name("pool", pool), int(number))
        return cls(shard, check_name("tenant", tenant), check_own_id(own_id))
