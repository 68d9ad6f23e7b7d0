"""Whether the Redis user that is used here has the rights of a role."""

from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from redis.asyncio import Redis

from protocol import access
from protocol.access import Role
from protocol.access_probe import NAME, probes
from protocol.call import run_all
from protocol.errors import NotAllowed
from tokenfleet.doctor.finding import Finding, fail, ok

ROLES = ("producer", "subscriber", "worker", "scheduler", "gateway", "runner", "metrics")
UNNAMED = ("scheduler", "worker", "gateway", "runner")
"""What a user without a role's name is asked for: together they are a fleet."""
MOST_TOLD = 4


def user_of(url: str) -> str:
    """The user that a Redis URL names; `default` where it names none."""
    return unquote(urlsplit(url).username or "") or "default"


def roles_for(user: str, role: str, tenant: str) -> dict[str, Role]:
    """The roles to ask about: the one that is named, else the one that the user is called after, else a fleet's."""
    kind, _, name = user.partition("-")
    if role:
        wanted: Sequence[str] = (role,)
    else:
        wanted = (kind,) if kind in ROLES else UNNAMED
    own = name if kind in ROLES and kind in wanted else ""
    return {one: _role(one, own, tenant) for one in wanted}


def _role(role: str, name: str, tenant: str) -> Role:
    """As `tokenfleet acl` makes it for the user's own tenant or label."""
    of_tenant = name or tenant or access.ANY_TENANT
    return {
        "producer": lambda: access.producer(of_tenant),
        "subscriber": lambda: access.subscriber(of_tenant),
        "worker": lambda: access.worker(name or NAME),
        "scheduler": access.scheduler,
        "gateway": access.gateway,
        "runner": access.runner,
        "metrics": access.metrics,
    }[role]()


async def of_rights(redis: Redis, user: str, roles: dict[str, Role]) -> list[Finding]:
    """A finding for each role; nothing is changed in Redis.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    found = []
    for name, role in roles.items():
        asked = probes(role)
        answers = await run_all(redis, list(asked.values()))
        refused = [right for right, answer in zip(asked, answers, strict=True) if isinstance(answer, NotAllowed)]
        found.append(of_refused(user, name, refused))
    return found


def of_refused(user: str, role: str, refused: Sequence[str]) -> Finding:
    """Whether a user that was refused these rights of a role, as they stand in a rule, may do what it does."""
    if not refused:
        return ok("acl", f"user {user} may do what a {role} does")
    more = f", and {len(refused) - MOST_TOLD} more" if len(refused) > MOST_TOLD else ""
    said = f"user {user} may not do what a {role} does: {', '.join(refused[:MOST_TOLD])}{more}"
    return fail("acl", said, "Print its rules with `tokenfleet acl`, put them into the ACL file, then ACL LOAD.")
