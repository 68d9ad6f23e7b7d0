"""What a worker that was killed had in its hands."""

from redis import Redis

from protocol import reads
from protocol.call import run_sync
from protocol.handle import Handle, Shard
from tests.support.servers import Server


def held_by(server: Server, shard: Shard, label: str, dead: set[str]) -> list[tuple[str, int]]:
    """(own id, attempt) of all that Redis counts as held by the lives of this label that were not looked at before.

    `dead` are those that were; these are added. When a life's lease ends does not tell which one is the last: after a
    gap all get the same one. One that was killed before it joined holds nothing, whenever its beat arrives.
    """
    with server.client() as client:
        leases = run_sync(client, reads.leases(shard))
        lives = [worker for worker in leases if worker not in dead and _label(client, shard, worker) == label]
        dead.update(lives)
        entries = [entry for worker in lives for entry in run_sync(client, reads.inbox_after(shard, worker, "0", 1))]
    return [(Handle.of(shard, entry.ref).own_id, entry.attempt) for entry in entries if entry.kind == "assign"]


def _label(client: Redis, shard: Shard, worker: str) -> str:
    record = run_sync(client, reads.worker_record(shard, worker))
    return record.label if record else ""
