"""API keys, as an operator makes, lists and revokes them."""

from collections.abc import Sequence

from producer.fleet import Fleet
from protocol import api_keys, reads
from protocol.api_keys import ApiKey, NamedKey
from protocol.call import Call, T, patiently, run
from protocol.errors import InvalidRequest, UnknownKey
from protocol.handle import check_name, check_text
from protocol.limits import NO_LIMITS, Limits
from protocol.states import Priority


async def create_key(
    fleet: Fleet,
    *,
    tenant: str = "",
    priorities: Sequence[Priority] = (),
    models: Sequence[str] = (),
    limits: Limits = NO_LIMITS,
    operator: bool = False,
    note: str = "",
) -> tuple[str, NamedKey]:
    """Make a key for a tenant, the fleet's own by default; no priorities or models: all of them.

    Yields the key itself, which nobody can tell again, and its record.

    Raises:
        InvalidId: the tenant or a model has a name that none can have.
        InvalidRequest: the note is too long or would move a cursor, or the tenant is not the fleet's.
    """
    if len(note) > api_keys.MAX_NOTE or not (note.isprintable() or not note):
        raise InvalidRequest(f"note: at most {api_keys.MAX_NOTE} printable characters")
    tenant = check_name("tenant", fleet.scope.tenant(tenant, fleet.tenant))
    secret = api_keys.new_secret()
    record = ApiKey(
        tenant=tenant,
        priorities=tuple(priorities) or tuple(Priority),
        models=tuple(check_text("model", model) for model in models),
        limits=limits,
        operator=operator,
        created_ms=await _patient(fleet, reads.store_time_ms()),
        last_four=secret[-4:],
        note=note,
    )
    key = NamedKey(api_keys.digest_of(secret), record)
    await _patient(fleet, api_keys.save(key))
    return secret, key


async def list_keys(fleet: Fleet) -> list[NamedKey]:
    """All keys that the fleet may know of, the oldest first, the revoked ones too."""
    found = await _patient(fleet, api_keys.everyone())
    return [key for key in found if fleet.scope.only in ("", key.record.tenant)]


async def revoke_key(fleet: Fleet, key_id: str) -> NamedKey:
    """Make a key worthless; a gateway that has just used it heeds that within a few seconds. Its jobs go on.

    Raises:
        UnknownKey: there is none with this id.
    """
    for key in await list_keys(fleet):
        if key.id == key_id:
            break
    else:
        raise UnknownKey("no key has this id", "`tokenfleet keys list` shows those that are.")
    if not key.record.revoked_ms:
        now_ms = await _patient(fleet, reads.store_time_ms())
        key = NamedKey(key.digest, key.record.model_copy(update={"revoked_ms": now_ms}))
        await _patient(fleet, api_keys.save(key))
    return key


async def _patient(fleet: Fleet, call: Call[T]) -> T:
    return await patiently(lambda: run(fleet.redis, call), fleet.settings.redis_patience_s)
