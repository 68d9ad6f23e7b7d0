"""What a request asks of the fleet beside its answer: in `extra_body.fleet`, or in `x-fleet-…` headers."""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from producer.gateway.auth import Grant
from producer.gateway.failures import Forbidden
from producer.requests import LONGEST_S
from producer.words import words_of
from protocol.errors import InvalidId, InvalidRequest
from protocol.handle import check_own_id
from protocol.states import Priority

PREFIX = "x-fleet-"
IDEMPOTENCY = "idempotency-key"
_TEXTS = ("priority", "tenant", "id")
Seconds = Annotated[float, Field(ge=0, le=LONGEST_S, allow_inf_nan=False)]


class Wishes(BaseModel):
    """The member `fleet` of a body. Each may be a header too, as in `x-fleet-priority: low`; the body's one counts."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="FleetOptions")

    priority: Priority | None = None
    """`high` (online), `medium` or `low`; the most urgent one that the key allows by default."""
    deadline: Annotated[float, Field(gt=0, le=LONGEST_S, allow_inf_nan=False)] | None = None
    """Seconds from now; later, the job expires."""
    tenant: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")] | None = None
    """Whose job it is: the key's own tenant, or a refusal."""
    keep: Annotated[bool, Field(strict=True)] | Annotated[Seconds, Field(strict=True)] | None = None
    """Go on when the client leaves: true for ever, or for so many seconds without anybody who follows it."""
    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.@=+~,-]{1,64}$")] | None = None
    """An id of your own: sent again with the same body, it is the same job. `idempotency-key` says the same."""
    best_effort: Annotated[bool, Field(strict=True)] = False
    """Never refused because its target can't be met."""
    time_limit: Annotated[float, Field(ge=0.001, le=LONGEST_S, allow_inf_nan=False, strict=True)] | None = None
    """Seconds that one attempt may run."""
    wait: Annotated[Seconds, Field(strict=True)] | None = None
    """Seconds to wait for an answer that is not streamed; then 504, and the request's id to ask for it later."""

    @classmethod
    def of(cls, headers: Mapping[str, str], member: object) -> Self:
        """Read both places.

        Raises:
            InvalidRequest: a name or a value that there is not.
            InvalidId: no job can have this id, or there is no tenant of such a name.
        """
        if member is not None and not isinstance(member, dict):
            raise InvalidRequest('fleet: an object is required, such as {"priority": "low"}')
        given = _of_headers(headers) | (member or {})
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            # The last alternative of a union says what may stand there.
            problem = error.errors(include_input=False, include_url=False, include_context=False)[-1]
            told = f"fleet{_known(problem['loc'])}: {words_of(problem, cls.model_fields)}"
            raise (InvalidId if problem["loc"][:1] in (("id",), ("tenant",)) else InvalidRequest)(told) from None

    def priority_for(self, grant: Grant) -> Priority:
        """The priority that is asked for, else the key's most urgent one.

        Raises:
            Forbidden: the key does not have it.
        """
        allowed = [one for one in Priority if one in grant.priorities]
        if self.priority is None and allowed:
            return allowed[0]
        if self.priority is None or self.priority not in allowed:
            raise Forbidden("this key may not submit jobs of this priority", f"It may: {', '.join(allowed) or 'none'}.")
        return self.priority

    def tenant_for(self, grant: Grant) -> str:
        """The key's tenant.

        Raises:
            Forbidden: another one was asked for.
        """
        if self.tenant not in (None, grant.tenant):
            raise Forbidden("this key acts for another tenant", "Leave the tenant out.")
        return grant.tenant

    def unfollowed_s(self, grace_s: float) -> float | None:
        """After how long without anybody who wants it the job is cancelled; None: it goes on."""
        if isinstance(self.keep, bool):
            return None if self.keep else grace_s
        return grace_s if self.keep is None else self.keep

    def wait_s(self, most_s: float) -> float:
        """How long an answer that is not streamed is waited for."""
        return most_s if self.wait is None else min(self.wait, most_s)


def _known(location: tuple[int | str, ...]) -> str:
    """The member's name, where it is one of ours: others are the user's own words."""
    return f".{location[0]}" if location and location[0] in Wishes.model_fields else ""


def _of_headers(headers: Mapping[str, str]) -> dict[str, object]:
    named = {name.removeprefix(PREFIX).replace("-", "_"): text for name, text in headers.items() if _is_ours(name)}
    found: dict[str, object] = {name: text if name in _TEXTS else _value(text) for name, text in named.items()}
    if key := headers.get(IDEMPOTENCY):
        found.setdefault("id", _own_id(key))
    return found


def _is_ours(name: str) -> bool:
    return name.startswith(PREFIX)


def _own_id(key: str) -> str:
    """A client's own key as a job's id: as it is where it may be one."""
    try:
        return check_own_id(key)
    except InvalidId:
        return f"key-{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()[:32]}"


def _value(text: str) -> object:
    """A header's text as JSON would have it."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text
