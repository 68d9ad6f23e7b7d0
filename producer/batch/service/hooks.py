"""What a webhook is told of a batch's end, signed as Standard Webhooks says. Pure.

Signature: base64 of HMAC-SHA256 over `id.timestamp.body`, see https://www.standardwebhooks.com.
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass

from protocol import wire
from protocol.batches import BatchRecord
from protocol.errors import SetupError

_PREFIX = "whsec_"


@dataclass(frozen=True, slots=True)
class Event:
    """One call of the webhook; a repeat has the same id and body."""

    id: str
    body: bytes


def event_of(record: BatchRecord) -> Event:
    """`batch.completed`, `batch.failed`, `batch.expired` or `batch.cancelled`; the batch must have ended."""
    event_id = f"evt_{hashlib.sha256(record.name.ref.encode()).hexdigest()[:24]}"
    payload = {
        "id": event_id,
        "object": "event",
        "created_at": record.times_ms[record.status] // 1000,
        "type": f"batch.{record.status}",
        "data": {"id": record.name.id},
    }
    return Event(event_id, wire.dumps(payload))


def headers(event: Event, secret: str, now_s: int) -> dict[str, str]:
    """What goes along; without a secret there is no signature.

    Raises:
        SetupError: the secret begins with `whsec_` and goes on with what is no base64.
    """
    told = {"content-type": "application/json", "webhook-id": event.id, "webhook-timestamp": str(now_s)}
    if not secret:
        return told
    signed = f"{event.id}.{now_s}.".encode() + event.body
    signature = base64.b64encode(hmac.digest(key_of(secret), signed, "sha256")).decode()
    return told | {"webhook-signature": f"v1,{signature}"}


def key_of(secret: str) -> bytes:
    """The key of a secret; raises as `headers`."""
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise SetupError("the webhook's secret is malformed", "After whsec_ it must be base64.") from None
