"""What is wrong with a Redis server, by what it says of itself. Pure."""

from collections.abc import Iterator

from protocol import library
from protocol.server_facts import ServerConfig, ServerFacts
from tokenfleet.doctor.finding import Finding, fail, ok, warn

OLDEST, KNOWS_WAITAOF = (7, 0), (7, 2)
NEW_ENOUGH = "Use Valkey, or Redis 7.0 or later."
NEARLY_FULL = 0.9
PUBSUB_HARD, PUBSUB_SOFT = 64 * 2**20, 16 * 2**20
"""What a follower may have waiting for it: some seconds of many streams."""
_LIMIT = 'CONFIG SET client-output-buffer-limit "pubsub 64mb 16mb 60"'


def of_facts(facts: ServerFacts) -> Iterator[Finding]:
    """Version, role, memory, eviction, append-only file."""
    yield _version(facts)
    yield _primary(facts)
    yield _memory(facts)
    yield _eviction(facts)
    yield _aof(facts)


def _version(facts: ServerFacts) -> Finding:
    said = f"{facts.product} {'.'.join(map(str, facts.version))}"
    if facts.speaks < OLDEST:
        return fail("version", f"{said} has no functions", NEW_ENOUGH)
    if facts.speaks < KNOWS_WAITAOF:
        advice = "Use Valkey or Redis 7.2 for them, or add a replica, or set appendfsync always."
        return warn("version", f"{said} can't tell when a write is on its disk: durable submits need that", advice)
    return ok("version", said)


def _primary(facts: ServerFacts) -> Finding:
    if facts.replica:
        advice = "Name the primary in TOKENFLEET_REDIS_URL, or the sentinels: redis+sentinel://HOST,HOST/SERVICE/0."
        return fail("primary", "this server is a replica: it takes no writes", advice)
    replicas = f"{facts.replicas} {'replica' if facts.replicas == 1 else 'replicas'}"
    return ok("primary", f"a primary with {replicas}")


def _memory(facts: ServerFacts) -> Finding:
    used = _size(facts.used)
    if not facts.limit:
        advice = "Set maxmemory to about three quarters of its host's: a full server then refuses jobs, and lives."
        return warn("memory", f"{used} used, and no limit", advice)
    said = f"{used} of {_size(facts.limit)} used"
    advice = "Raise maxmemory, or keep less: keep_s, batch_keep_s, the lanes' limits."
    if facts.used >= facts.limit:
        return fail("memory", f"{said}: new jobs are refused", advice)
    return warn("memory", said, advice) if facts.used > NEARLY_FULL * facts.limit else ok("memory", said)


def _eviction(facts: ServerFacts) -> Finding:
    if facts.policy == "noeviction":
        return ok("eviction", "noeviction: a full server refuses instead of forgetting jobs")
    advice = "CONFIG SET maxmemory-policy noeviction, and in its configuration file."
    return fail("eviction", f"{facts.policy}: a full server throws jobs away", advice)


def _aof(facts: ServerFacts) -> Finding:
    if facts.writes_fail:
        return fail("aof", "the append-only file can't be written", "Look at its log: is its disk full?")
    if facts.appends:
        return ok("aof", "an append-only file keeps jobs over a restart")
    advice = "CONFIG SET appendonly yes, and in its configuration file."
    if facts.replicas:
        return warn("aof", "no append-only file: only the replicas keep jobs over a restart", advice)
    return fail("aof", "no append-only file: a restart forgets every job", advice)


def of_config(config: ServerConfig, *, appends: bool) -> Iterator[Finding]:
    """How soon a write is on the disk, and how much may wait for a follower that does not read."""
    if appends:
        yield _fsync(config)
    yield _buffers(config)


def _fsync(config: ServerConfig) -> Finding:
    kept = {"always": "every write is on the disk before it is answered", "everysec": "a power cut costs two seconds"}
    if config.fsync in kept:
        return ok("fsync", f"{config.fsync}: {kept[config.fsync]}")
    advice = "CONFIG SET appendfsync everysec, and in its configuration file."
    return warn("fsync", f"{config.fsync}: a power cut may cost half a minute of jobs", advice)


def _buffers(config: ServerConfig) -> Finding:
    limit = config.pubsub
    if not limit.hard:
        return warn("buffers", "one follower that does not read can fill the server's memory", f"{_LIMIT}.")
    said = f"a follower is cut off with {_size(limit.hard)} waiting, or {_size(limit.soft)} for {limit.soft_s} s"
    if limit.hard < PUBSUB_HARD or 0 < limit.soft < PUBSUB_SOFT:
        return warn("buffers", f"{said}: slow ones begin anew too often", f"{_LIMIT}, and in its configuration file.")
    return ok("buffers", said)


def of_library(state: library.State) -> Finding:
    """Whether it has the functions that all moves of jobs are."""
    advice = "Start a scheduler of this version: it loads its library."
    if state == "missing":
        return fail("library", "Redis has no function library: nothing can be submitted", advice)
    if state == "other":
        return fail("library", "Redis has the function library of another version of tokenfleet", advice)
    return ok("library", f"{library.NAME}, as this version of tokenfleet has it")


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
