"""What a hand may write straight into Redis: entries and fields that no role writes, and keys of other types."""

from hypothesis import strategies as st
from redis.asyncio import Redis

from protocol import keys
from protocol.batches import BatchName, BatchSpec, BatchStatus
from protocol.states import Priority, State
from tests.support.builders import SHARD, SPEC, a_handle

Command = tuple[str | bytes | float, ...]
BROKEN = a_handle("broken")
REF = BROKEN.ref
WORKER = "w1"
BATCH = BatchName("t", "batch_broken")
GOOD_BATCH = BatchName("good", "batch_good")
BATCH_LISTS = [keys.LIVING_BATCHES, keys.ENDED_BATCHES, keys.BATCH_HOOKS]
LISTS = [*BATCH_LISTS, keys.batches(BATCH.tenant), keys.batches(GOOD_BATCH.tenant)]
LANES = [keys.lane(SHARD, priority) for priority in Priority]
SORTED = [*LANES, keys.due(SHARD), keys.deadlines(SHARD), keys.workers(SHARD), *LISTS]
STREAMS = [keys.events(SHARD), keys.inbox(SHARD, WORKER), keys.dead(SHARD), keys.tokens(BROKEN)]
OWN = [keys.job(BROKEN), keys.body(BROKEN), keys.result(BROKEN), keys.tokens(BROKEN)]
HASHES = [keys.clock(SHARD), keys.worker(SHARD, WORKER), keys.tenant(SHARD, "t"), keys.fleet(SHARD), keys.MODELS]
OTHERS = [keys.leader(SHARD), keys.prefixes(SHARD, WORKER)]
EVERY = [*SORTED, *STREAMS, *OWN, *HASHES, *OTHERS, keys.batch(BATCH)]

bytes_ = st.binary(max_size=8) | st.sampled_from(
    [b"", b"-1", b"1e400", b"nan", b"9" * 400, b"\xff", b"{}", b"[]", b"0"]
)
refs = st.sampled_from([REF.encode(), b"t:ghost", b":", b"t:", b"x", b"\xff:\xfe", b"a:b:c", b"t:*"])
members = (
    bytes_
    | refs
    | refs.map(lambda ref: b"0000000000000000:" + ref)
    | st.sampled_from([b"w1", b"ghost", b"5:t:broken", BATCH.ref.encode(), BATCH.id.encode(), b"t:batch_ghost"])
)
scores = st.sampled_from([-1.0, 0.0, 1.0, 1e15, 1e300, float("inf"), float("-inf")])

SOUND: dict[str, str] = {
    "state": "queued",
    "priority": "high",
    "nonces": "n",
    "digest": "d",
    "spec": SPEC.model_dump_json(),
    "keep": "60000",
    "submitted": "1",
    "deadline": "9000000000000",
    "attempt": "3",
    "worker": WORKER,
    "entry": "1-1",
    "member": f"0000000000000000:{REF}",
    "score": "0",
    "frames": "0",
    "log": "1",
    "strikes": "0",
    "tries": "0",
    "reply": "r",
    "history": "{}",
    "why": "",
    "hold": "1",
    "dead": "1-1",
    "started": "1",
    "assigned": "1",
}
SOUND_BATCH: dict[str, str] = {
    "spec": BatchSpec(input_file_id="file-1", endpoint="/v1/completions").model_dump_json(),
    "status": "validating",
    **{f"at:{status}": "1" for status in BatchStatus},
    "counts": "{}",
    "usage": "{}",
    "errors": "[]",
    "output_file_id": "file-../../x",
    "error_file_id": "file-2",
    "model": "m",
    "takes": "1",
    "token": "x",
}
garbage = bytes_ | st.sampled_from([str(state).encode() for state in State])


def _one(*shapes: st.SearchStrategy[Command]) -> st.SearchStrategy[list[Command]]:
    return st.one_of(*shapes).map(lambda command: [command])


def _fields(names: list[bytes]) -> st.SearchStrategy[tuple[bytes, ...]]:
    pairs = st.dictionaries(st.sampled_from(names) | bytes_, garbage | refs | st.sampled_from([b"assign", b"abort"]))
    return pairs.filter(bool).map(lambda found: tuple(item for pair in found.items() for item in pair))


def _of_job(lacks: set[str], broken: dict[str, bytes], stored: bytes, chosen: set[int]) -> list[Command]:
    """A job whose fields lack some and have others broken, where a scheduler or a worker comes across it."""
    fields = {name: value for name, value in (SOUND | broken).items() if name not in lacks}
    places: list[Command] = [
        ("ZADD", LANES[0], 0.0, SOUND["member"]),
        ("ZADD", keys.due(SHARD), 0.0, REF),
        ("ZADD", keys.deadlines(SHARD), 0.0, REF),
        ("XADD", keys.inbox(SHARD, WORKER), "*", "k", "assign", "j", REF, "a", "3"),
        ("XADD", keys.dead(SHARD), "*", "j", REF, "a", "3"),
        ("SET", keys.result(BROKEN), stored),
        ("SET", keys.body(BROKEN), stored),
    ]
    job: Command = ("HSET", keys.job(BROKEN), *(item for pair in fields.items() for item in pair))
    return [job, *(places[index] for index in sorted(chosen))]


_broken_jobs = st.builds(
    _of_job,
    st.sets(st.sampled_from(list(SOUND)), max_size=3),
    st.dictionaries(st.sampled_from(list(SOUND)), garbage, max_size=3),
    bytes_,
    st.sets(st.integers(0, 6), min_size=1),
)


def _of_batch(lacks: set[str], broken: dict[str, bytes], chosen: set[int]) -> list[Command]:
    """A batch likewise, in those lists."""
    fields = {name: value for name, value in (SOUND_BATCH | broken).items() if name not in lacks}
    record: Command = ("HSET", keys.batch(BATCH), *(item for pair in fields.items() for item in pair))
    listed = [*((key, BATCH.ref) for key in BATCH_LISTS), (keys.batches(BATCH.tenant), BATCH.id)]
    return [record, *(("ZADD", listed[index][0], 0.0, listed[index][1]) for index in sorted(chosen))]


_broken_batches = st.builds(
    _of_batch,
    st.sets(st.sampled_from(list(SOUND_BATCH)), max_size=2),
    st.dictionaries(
        st.sampled_from(list(SOUND_BATCH)),
        bytes_ | st.sampled_from([str(status).encode() for status in BatchStatus]),
        max_size=3,
    ),
    st.sets(st.integers(0, 3), min_size=1),
)


def _of_another_type(key: str) -> st.SearchStrategy[list[Command]]:
    shapes: list[Command] = [
        ("SET", key, "x"),
        ("SADD", key, "x"),
        ("RPUSH", key, "x"),
        ("HSET", key, "x", "y"),
        ("ZADD", key, 1.0, "x"),
        ("XADD", key, "99999999999999-1", "x", "y"),
    ]
    return st.sampled_from(shapes).map(lambda write: [("DEL", key), write])


writings = st.one_of(
    _one(
        st.tuples(st.just("ZADD"), st.sampled_from(SORTED), scores, members),
        st.tuples(st.just("ZADD"), st.sampled_from(LANES), scores, members),
    ),
    st.tuples(st.sampled_from(STREAMS), _fields([b"k", b"j", b"a", b"c", b"s", b"f", b"v"])).map(
        lambda pair: [("XADD", pair[0], "*", *pair[1])]
    ),
    st.tuples(
        st.sampled_from(HASHES),
        _fields(
            [b"attempt", b"seq", b"vt:high", b"weight:t", b"tick", b"tag:high", b"held", b"slots", b"at", b"report"]
        ),
    ).map(lambda pair: [("HSET", pair[0], *pair[1])]),
    _broken_jobs,
    _broken_batches,
    st.sampled_from(EVERY).flatmap(_of_another_type),
)
"""Commands that write one thing by hand."""


async def write(redis: Redis, commands: list[Command]) -> None:
    """Run them; one that a key of another type refuses does nothing."""
    pipe = redis.pipeline(transaction=False)
    for command in commands:
        pipe.execute_command(*command)
    await pipe.execute(raise_on_error=False)
