"""Reads of live views: they are repeated each second, for all shards and workers, so each asks for little."""

from collections.abc import Mapping, Sequence

from protocol import keys, reads
from protocol.batches import BatchName
from protocol.call import Call
from protocol.errors import FleetError
from protocol.handle import Handle, Shard

Entries = Sequence[tuple[bytes, Mapping[bytes, bytes]]]


def is_led(shard: Shard) -> Call[bool]:
    """Whether a dispatcher leads the shard."""
    return Call(("EXISTS", keys.leader(shard)), bool)


def standby_ms(shard: Shard) -> Call[int]:
    """When a dispatcher last asked for the lead and another had it, in ms of Redis's clock; 0 for never."""
    return Call(("HGET", keys.clock(shard), "standby"), lambda reply: reads.moment(reply or b"0"))


def held_jobs(shard: Shard, worker_id: str, count: int) -> Call[tuple[Handle, ...]]:
    """Jobs that a worker holds, in the order in which it got them, among the first `count` entries of its inbox."""

    def parse(reply: Entries) -> tuple[Handle, ...]:
        refs = [fields.get(b"j", b"").decode(errors="replace") for _, fields in reply if fields.get(b"k") == b"assign"]
        # What was written by hand names no job.
        return tuple(Handle.of(shard, ref) for ref in dict.fromkeys(refs) if ":" in ref)

    return Call(("XRANGE", keys.inbox(shard, worker_id), "-", "+", "COUNT", count), parse)


def waits_since_ms(handle: Handle) -> Call[int | None]:
    """When a queued job was submitted, or its delay ended, in ms of Redis's clock; None when it is gone."""
    return Call(("HMGET", keys.job(handle), "submitted", "ripe"), _since_ms)


def _since_ms(reply: Sequence[bytes | None]) -> int | None:
    submitted, ripe = reply
    return None if submitted is None else max(reads.moment(submitted), reads.moment(ripe or b"0"))


def running_batches(count: int) -> Call[list[BatchName]]:
    """At most `count` batches that have not ended, those with an owner first."""
    return Call(("ZRANGE", keys.LIVING_BATCHES, 0, count - 1, "REV"), _names)


def _names(reply: Sequence[bytes]) -> list[BatchName]:
    found = []
    for ref in reply:
        try:
            found.append(BatchName.parse(ref.decode()))
        except (FleetError, UnicodeDecodeError):
            continue
    return found
