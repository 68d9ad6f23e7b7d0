"""What each role may do in Redis, as the lines of an ACL file.

A function is checked as its caller, so a role needs the commands that its functions give, and may then give them by
hand too. Each grant is the least for one kind of key and becomes a selector: a right to one kind is none to another.

So these users can't write a key of another type under one of our names, and need no right to set such a key apart.
Where an operator did, a move that meets it is refused, until the operator has renamed it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from protocol import keys
from protocol.errors import SetupError
from protocol.handle import check_name

ANY_TENANT = "*"
# Connections, and what a client asks of the server itself; WAITAOF is in it where the server has that. Tracking is
# left out: Redis tells whoever asks for it the name of each key that changes, whoever's it is.
_BASE = "+@connection -@dangerous -client|tracking +time"
_LISTENING = "+subscribe +unsubscribe"
# What durable submits ask for; `INFO` alone, which tells everything, is refused.
_DURABLE = "+info|server"


@dataclass(frozen=True, slots=True)
class Role:
    """One user's rights: commands that name no key, channel patterns, and what it may do with which keys."""

    plain: str
    grants: Sequence[str]
    channels: Sequence[str] = ()

    @property
    def rules(self) -> str:
        """The user's rules, without a password."""
        channels = (f"&{channel}" for channel in self.channels)
        return " ".join(("resetkeys resetchannels -@all", _BASE, self.plain, *channels, *self.grants))


def _key(kind: str) -> str:
    """A pattern for the keys of a kind, in every shard."""
    return f"tf:{{*}}:{kind}"


def _may(commands: str, *kinds: str, how: str = "") -> str:
    """A selector; `how` is `%R` or `%W` for keys that are only read or only written."""
    return (
        f"({' '.join([*(f'+{command}' for command in commands.split()), *(f'{how}~{_key(kind)}' for kind in kinds)])})"
    )


def _may_call(names: str, *kinds: str) -> str:
    """A selector for functions: Redis counts all keys of a call as read and written."""
    return _may(" ".join(f"fcall|tf1_{name}" for name in names.split()), *kinds)


def _may_with(key: str, commands: str, how: str = "") -> str:
    """A selector for one key that no shard has."""
    return f"({' '.join(f'+{command}' for command in commands.split())} {how}~{key})"


def producer(tenant: str) -> Role:
    """Submits, cancels, reads and forgets the jobs of its tenant.

    It writes what all tenants share (lanes, counters, hints): a hostile one can disturb others, and not read them.
    """
    job, body, result, tokens, done = (f"{kind}:{tenant}:*" for kind in ("job", "body", "result", "tokens", "done"))
    own, bucket = f"tenant:{tenant}", f"bucket:{tenant}:*"
    shared = ("lane:*", "clock", "due", "deadlines", "events", "dead")
    grants = (
        _may_call("submit cancel forget", job, body, result, tokens, done, own, bucket, *shared),
        _may("hmget hgetall hget hset pexpire", job),
        _may("get set", body, result),
        _may("xadd xrange pexpire", tokens),
        _may("del", job, body, result, tokens, how="%W"),
        _may("xadd xread xdel pexpire", done),
        _may("hmget hset hincrby persist expire", own),
        _may("hmget hset persist pexpire", bucket),
        _may("hmget hget hset hincrby", "clock"),
        _may("zadd zrem zrank", "lane:*"),
        _may("zadd zrem", "due", "deadlines", how="%W"),
        _may("xadd xlen", "events"),
        _may("xdel", "dead", how="%W"),
        _may("xadd xdel", "inbox:*", how="%W"),
        _may("hincrby hset hgetall", "worker:*"),
        _may("zrange", "workers", how="%R"),
        _may_with(keys.MODELS, "hgetall", "%R"),
        *_batches(tenant),
    )
    return Role(f"{_LISTENING} {_DURABLE} +publish", grants, [_key(tokens)])


def _batches(tenant: str) -> tuple[str, ...]:
    """What a producer may do with its tenant's batches: create, cancel, read and delete them, not run them."""
    batch, listed = f"batch:{tenant}:*", f"batches:{tenant}"
    return (
        _may_call("batch_create batch_cancel batch_drop", batch, listed, "living", "ended", "hooks"),
        _may("hget hset hsetnx hgetall del", batch),
        _may("zcard zadd zrem zrevrange zrevrank", listed),
        _may("zadd", "living", how="%W"),
        _may("zrem", "living", "ended", "hooks", how="%W"),
        _may("exists", "arq:runs:health-check", how="%R"),
    )


def runner() -> Role:
    """Runs the batches of all tenants: what a producer of theirs may do, own batches, and keep arq's queues."""
    shared = ("living", "ended", "hooks")
    grants = (
        *producer(ANY_TENANT).grants,
        _may_call("batch_take batch_write batch_release", "batch:*", *shared),
        _may("hmget hdel hincrby pexpire", "batch:*"),
        _may("zscore zrange zrangebyscore", "living"),
        _may("zadd zrangebyscore", "ended", "hooks"),
        _may("zscore", "hooks", how="%R"),
        _may("zscore zadd zrem zincrby zcard zrangebyscore", "arq:*"),
        _may("psetex del", "arq:*", how="%W"),
        f"(+watch +exists +get +incrby +psetex +expire +pexpire +del +zrem ~{keys.ARQ_OWN})",
    )
    # It asks for the server's version and size when it starts, and writes in transactions.
    asked = "+info|memory +info|clients +dbsize +multi +exec +unwatch"
    return Role(f"{_LISTENING} {_DURABLE} {asked} +publish", grants, [_key("tokens:*:*")])


def gateway() -> Role:
    """A producer for all tenants, that asks about API keys by their hashes: it can neither list nor change them."""
    role = producer(ANY_TENANT)
    listed = _may("xrevrange", "dead", how="%R")
    grants = [*dict.fromkeys([*role.grants, *_looking()]), listed, _may_with(keys.API_KEYS, "hget hlen", "%R")]
    # Whether anybody still follows a job whose client has left.
    return replace(role, plain=f"{role.plain} +pubsub|numsub", grants=grants)


def subscriber(tenant: str) -> Role:
    """Follows the jobs of its tenant and reads their results; writes nothing."""
    grants = (
        _may("hmget hgetall", f"job:{tenant}:*", how="%R"),
        _may("xrange", f"tokens:{tenant}:*", how="%R"),
        _may("get", f"result:{tenant}:*", how="%R"),
    )
    return Role(_LISTENING, grants, [_key(f"tokens:{tenant}:*")])


def worker(label: str) -> Role:
    """Runs jobs of any tenant: their requests pass through it. Its inbox and its hash are its own label's."""
    inbox, own, prefixes = (f"{kind}:*.{label}" for kind in ("inbox", "worker", "prefixes"))
    jobs = ("job:*", "body:*", "result:*", "tokens:*", "tenant:*")
    shared = ("workers", "events", "lane:*", "due", "deadlines", "clock", "dead")
    grants = (
        _may_call("beat start emit finish requeue leave", inbox, own, prefixes, *jobs, *shared),
        _may_with(keys.MODELS, "fcall|tf1_register"),
        _may("xread xrange xdel", inbox),
        _may("hset hget hmget hincrby", own),
        _may("sadd srem", prefixes, how="%W"),
        _may("del", inbox, own, prefixes, how="%W"),
        _may("hmget hget hset pexpire", "job:*"),
        _may("get set del", "body:*"),
        _may("set", "result:*", how="%W"),
        _may("xadd pexpire xlen xrange xrevrange", "tokens:*"),
        _may("xadd pexpire", "done:*", how="%W"),
        _may("hincrby persist", "tenant:*"),
        _may("hmget hset pexpire", "bucket:*"),
        _may("hincrby", "clock"),
        _may("zscore zadd zrem", "workers"),
        _may("exists zadd", "lane:*"),
        _may("zadd", "due", how="%W"),
        _may("zrem", "deadlines", how="%W"),
        _may("xadd xlen", "events"),
        _may("xadd", "dead", how="%W"),
        _may_with(keys.MODELS, "hget hset"),
    )
    return Role("+publish +pubsub|numsub", grants, [_key("tokens:*")])


def scheduler() -> Role:
    """Loads the library, leads, assigns, expires, reclaims; reads no answers, and requests only to set them aside."""
    control = ("leader", "clock", "workers", "due", "deadlines", "events", "dead", "lane:*", "inbox:*")
    typed = [kind for kind in control if kind != "inbox:*"]
    grants = (
        _may_call("tick assign wake command", *control),
        _may("del", "body:*", how="%W"),
        _may("del", "inbox:*", "worker:*", "prefixes:*", how="%W"),
        _may("type", *typed),
        _may("get set pttl pexpire", "leader"),
        _may("hget hset hmget hincrby", "clock"),
        _may("zrange zrangebyscore zscore zadd zrem", "workers"),
        _may("zrange zadd zrem zcard", "lane:*"),
        _may("zrange zrangebyscore zadd zrem", "due"),
        _may("zrangebyscore zrem", "deadlines"),
        _may("xread xlen xadd xtrim", "events"),
        _may("xadd", "dead", how="%W"),
        _may("xlen", "dead", how="%R"),
        _may("xrange xrevrange xadd xdel", "inbox:*"),
        _may("hmget hget hset hincrby", "worker:*"),
        _may("smembers", "prefixes:*", how="%R"),
        _may("hmget hget hset pexpire", "job:*"),
        _may("get set pexpire", "body:*"),
        _may("set pexpire", "result:*", how="%W"),
        _may("xadd pexpire", "tokens:*", "done:*", how="%W"),
        _may("hmget hget hset hincrby persist expire", "tenant:*"),
        _may("hmget hset pexpire", "bucket:*"),
        _may("hset", "fleet", how="%W"),
        _may_with(keys.MODELS, "hgetall", "%R"),
    )
    return Role("+publish +function|load +function|list +info|memory", grants, [_key("tokens:*")])


def metrics() -> Role:
    """Looks at lanes, workers, batches and what is known of waiting jobs; at no request and no answer."""
    return Role("", _looking())


def _looking() -> tuple[str, ...]:
    """What `status`, `top`, `doctor` and the live page read."""
    return (
        _may("zcard", "lane:*", "due", how="%R"),
        _may("zrange", "lane:*", "workers", how="%R"),
        _may("xlen", "dead", how="%R"),
        _may("exists", "leader", how="%R"),
        _may("hget", "clock", how="%R"),
        _may("hmget", "job:*", how="%R"),
        _may("hgetall", "worker:*", "fleet", how="%R"),
        _may("xrange", "inbox:*", how="%R"),
        _may("zrange", "living", how="%R"),
        _may("hgetall", "batch:*", how="%R"),
        _may_with(keys.MODELS, "hgetall", "%R"),
    )


def users(tenants: Sequence[str], workers: Sequence[str]) -> dict[str, Role]:
    """Every user of a fleet by name: those of each tenant and of each worker's label, and one for each other role.

    Raises:
        InvalidId: a tenant's or a label's name has characters that it must not have.
    """
    made = {"scheduler": scheduler(), "metrics": metrics(), "gateway": gateway(), "runner": runner()}
    for tenant in tenants:
        check_name("tenant", tenant)
        made |= {f"producer-{tenant}": producer(tenant), f"subscriber-{tenant}": subscriber(tenant)}
    for label in workers:
        made[f"worker-{check_name('label', label)}"] = worker(label)
    return made


def acl_file(made: Mapping[str, Role], passwords: Mapping[str, str]) -> str:
    """The file. A user without a password can't log in; whoever does not log in may only ask whether the server is up.

    Raises:
        SetupError: there is a password for a user that is not there.
    """
    if unknown := sorted(passwords.keys() - made.keys() - {"operator"}):
        raise SetupError(f"no user is called {unknown[0]!r}", f"There are: {', '.join(['operator', *made])}.")
    # The operator keeps the server itself, ACL LOAD included.
    rules = {"operator": "~* &* +@all"} | {name: role.rules for name, role in made.items()}
    lines = ["user default on nopass resetkeys resetchannels -@all +ping"]
    lines += (f"user {name} on {_secret(passwords.get(name))} {text}" for name, text in rules.items())
    return "".join(f"{' '.join(line.split())}\n" for line in lines)


def _secret(password: str | None) -> str:
    return "resetpass" if password is None else f"#{hashlib.sha256(password.encode()).hexdigest()}"
