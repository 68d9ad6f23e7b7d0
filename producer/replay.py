"""Runs a job anew that was set aside: the same id, body and fields, with no strikes and a new attempt."""

import secrets

from redis.asyncio import Redis

from protocol import reads
from protocol.call import patiently, run
from protocol.errors import NotDead
from protocol.functions import Submission, Submitted, submit
from protocol.handle import Handle


async def replay(redis: Redis, handle: Handle, patience_s: float) -> Submitted:
    """Submit it again; its deadline counts from now.

    Raises:
        NotDead: no such job was set aside.
        QueueFull, StoreFull, StoreUnavailable: as `Fleet.submit`.
    """
    job = await patiently(lambda: run(redis, reads.dead_job(handle)), patience_s)
    body = await patiently(lambda: run(redis, reads.stored_body(handle)), patience_s)
    if job is None or not body:
        raise NotDead("no such job is set aside", "tokenfleet dead list shows those that are.")
    again = Submission(
        handle=handle,
        priority=job.priority,
        # Whoever followed it is gone, and who runs it anew need not follow.
        spec=job.spec.model_copy(update={"unfollowed_s": None}),
        body=body,
        digest=job.digest,
        nonce=secrets.token_hex(8),
        deadline_ms=job.deadline_ms,
        keep_ms=job.keep_ms,
        reply_to=job.reply_to,
        once=job.once,
    )
    return await patiently(lambda: run(redis, submit(again)), patience_s)
