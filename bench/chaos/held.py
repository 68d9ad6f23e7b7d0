"""What a worker that was killed had in its hands."""

from redis import Redis

from protocol import reads
from protocol.call import run_sync
from protocol.handle import Handle, Shard
from tests.support.servers import Server


def held_by(server: Server, shard: Shard, label: str, dead: set[str]) -> list[tuple[str, int]]:
    """(own id, attempt) of all that Redis counts as held by the last life of this label.

    `dead` are the lives that were looked at before; this one is added.
    """
    with server.client() as client:
        found = {lease: worker for worker, lease in run_sync(client, reads.leases(shard)).items() if lease}
        lives = [worker for _, worker in sorted(found.items()) if _label(client, shard, worker) == label]
        # A life that was killed before it joined holds nothing, and the one before it was looked at then.
        if not lives or lives[-1] in dead:
            return []
        dead.add(lives[-1])
        entries = run_sync(client, reads.inbox_after(shard, lives[-1], "0", 1))
    return [(Handle.of(shard, entry.ref).own_id, entry.attempt) for entry in entries if entry.kind == "assign"]


def _label(client: Redis, shard: Shard, worker: str) -> str:
    record = run_sync(client, reads.worker_record(shard, worker))
    return record.label if record else ""
