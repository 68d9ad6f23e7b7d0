"""Every key name in Redis, as a function. The same names are derived in `functions/_keys.lua`."""

from protocol.batches import BatchName
from protocol.handle import Handle, Shard
from protocol.states import Priority

MODELS = "tf:models"
"""Hash, global: model or adapter → where it is served."""

API_KEYS = "tf:api-keys"
"""Hash, global: SHA-256 of an API key → what it may."""


def prefix(shard: Shard) -> str:
    """What all keys of a shard begin with; the braces keep them on one cluster slot."""
    return f"tf:{{{shard}}}:"


def clock(shard: Shard) -> str:
    """Hash: attempt and sequence counters, fair time and count of each lane, limits, last tick, last one in vain."""
    return f"{prefix(shard)}clock"


def lane(shard: Shard, priority: Priority) -> str:
    """Sorted set: queued jobs, score = fair virtual time."""
    return f"{prefix(shard)}lane:{priority}"


def events(shard: Shard) -> str:
    """Stream: hints that wake the dispatcher."""
    return f"{prefix(shard)}events"


def due(shard: Shard) -> str:
    """Sorted set: delayed jobs and retries, score = when they ripen (ms)."""
    return f"{prefix(shard)}due"


def deadlines(shard: Shard) -> str:
    """Sorted set: living jobs, score = when they expire (ms)."""
    return f"{prefix(shard)}deadlines"


def workers(shard: Shard) -> str:
    """Sorted set: worker id → end of its lease (ms); 0 while it is being reclaimed."""
    return f"{prefix(shard)}workers"


def leader(shard: Shard) -> str:
    """String: the leading dispatcher's token."""
    return f"{prefix(shard)}leader"


def fleet(shard: Shard) -> str:
    """Hash: what the leading dispatcher publishes: the workers that it would like, and how its predictions hold."""
    return f"{prefix(shard)}fleet"


def dead(shard: Shard) -> str:
    """Stream: jobs that were given up."""
    return f"{prefix(shard)}dead"


def worker(shard: Shard, worker_id: str) -> str:
    """Hash: a worker's label, state, slots, held count and last load report."""
    return f"{prefix(shard)}worker:{worker_id}"


def inbox(shard: Shard, worker_id: str) -> str:
    """Stream: assignments, aborts and commands for one worker."""
    return f"{prefix(shard)}inbox:{worker_id}"


def prefixes(shard: Shard, worker_id: str) -> str:
    """Set: hashes of the prompt prefixes whose KV blocks a worker's engine holds."""
    return f"{prefix(shard)}prefixes:{worker_id}"


def tenant(shard: Shard, name: str) -> str:
    """Hash: a tenant's fair tags and counts."""
    return f"{prefix(shard)}tenant:{name}"


def bucket(shard: Shard, tenant: str, key_id: str) -> str:
    """Hash: what an API key of a tenant has spent of its limits, and has alive."""
    return f"{prefix(shard)}bucket:{tenant}:{key_id}"


def done(shard: Shard, tenant: str, name: str) -> str:
    """Stream: jobs of a tenant that ended, for the reply name that asked."""
    return f"{prefix(shard)}done:{tenant}:{name}"


def job(handle: Handle) -> str:
    """Hash: a job's metadata."""
    return f"{prefix(handle.shard)}job:{handle.ref}"


def body(handle: Handle) -> str:
    """String: the request body."""
    return f"{prefix(handle.shard)}body:{handle.ref}"


def result(handle: Handle) -> str:
    """String: the outcome."""
    return f"{prefix(handle.shard)}result:{handle.ref}"


def tokens(handle: Handle) -> str:
    """Stream: the token log. The pub/sub channel with the same frames has the same name."""
    return f"{prefix(handle.shard)}tokens:{handle.ref}"


_BATCHES = "tf:{batches}:"
"""What all keys of batches begin with: no shard is called so, for a shard's name has a number."""
LIVING_BATCHES = f"{_BATCHES}living"
"""Sorted set: batches that have not ended, as `tenant:id`, score = end of the owner's lease (ms)."""
ENDED_BATCHES = f"{_BATCHES}ended"
"""Sorted set: batches that have ended, score = until when they are kept (ms)."""
BATCH_HOOKS = f"{_BATCHES}hooks"
"""Sorted set: batches whose end is still to be told to a webhook, score = when they ended (ms)."""
BATCH_RUNS = f"{_BATCHES}arq:runs"
BATCH_CHORES = f"{_BATCHES}arq:chores"
BATCH_CALLS = f"{_BATCHES}arq:calls"
"""arq's queues: one job a batch; the sweep and the clean-up; and webhooks, whose server may be slow."""
RUNNER_SIGN = f"{BATCH_RUNS}:health-check"
"""String that expires within seconds: some batch runner lives. arq names and writes it."""
ARQ_OWN = "arq:*"
"""arq's other keys, which it names itself: its jobs, which of them run, and how often each was tried. All expire."""


def batch(name: BatchName) -> str:
    """Hash: a batch's description, state, times, counts, errors, and its owner's token."""
    return f"{_BATCHES}batch:{name.ref}"


def batches(tenant: str) -> str:
    """Sorted set: ids of a tenant's batches, score = when each was created (ms)."""
    return f"{_BATCHES}batches:{tenant}"
