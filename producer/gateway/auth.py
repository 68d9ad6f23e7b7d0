"""Who is asking, and what it may."""

from dataclasses import dataclass
from typing import Protocol

from protocol.limits import Limits
from protocol.states import Priority


@dataclass(frozen=True, slots=True)
class Grant:
    """What the bearer of a key may."""

    tenant: str
    key_id: str
    """Empty where everybody is let in: then nobody counts."""
    priorities: tuple[Priority, ...] = tuple(Priority)
    models: tuple[str, ...] = ()
    """Empty: all."""
    limits: Limits = Limits()

    def may_use(self, model: str) -> bool:
        """Whether it may ask for this model."""
        return not self.models or model in self.models


class KeyRing(Protocol):
    """Knows the keys."""

    async def find(self, key: str) -> Grant | None:
        """What the key may; None for one that is unknown or revoked."""
        ...


class Everybody:
    """Lets everybody in, as one tenant and without limits: for a gateway that only its owner can reach."""

    def __init__(self, tenant: str = "default") -> None:
        """All act for `tenant`."""
        self._grant = Grant(tenant, "")

    async def find(self, key: str) -> Grant | None:
        """The same for each key, and for none."""
        del key
        return self._grant
