"""Whether a user has the rights of a role, asked as that user: commands that Redis judges and that change nothing.

Redis looks at the rights before it looks at values. So what reads is asked of keys that are not there, and what writes
is given a value that Redis refuses: only a user who lacks the right is told so.
"""

from collections.abc import Iterator

from protocol.access import Role
from protocol.call import Arg, Call

NAME = "doctor"
"""Stands in the place of each `*`: no shard is called so, for a shard's name has a number."""
_BAD = "not-a-number"
_AFTER_KEY: dict[str, tuple[Arg, ...]] = {
    **dict.fromkeys(
        ("get", "del", "exists", "type", "pttl", "persist", "hgetall", "hlen", "smembers", "xlen", "zcard"), ()
    ),
    **dict.fromkeys(("hget", "hmget", "hdel", "zrem", "zrank", "zrevrank", "zscore", "srem"), (NAME,)),
    "xdel": ("0-0",),
    **dict.fromkeys(("zrange", "zrevrange", "zrangebyscore"), (0, 0)),
    **dict.fromkeys(("xrange", "xrevrange"), ("-", "+", "COUNT", 1)),
    **dict.fromkeys(("expire", "pexpire", "incrby"), (_BAD,)),
    "xtrim": ("MAXLEN", _BAD),
    "hset": (NAME, NAME, "odd"),
    "hincrby": (NAME, _BAD),
    "set": (NAME, _BAD),
    "psetex": (_BAD, NAME),
    "zadd": (_BAD, NAME),
    "zincrby": (_BAD, NAME),
    "xadd": (_BAD, NAME, NAME),
}
_PLAIN: dict[str, tuple[Arg, ...]] = {
    "time": ("TIME",),
    "dbsize": ("DBSIZE",),
    "info|server": ("INFO", "server"),
    "info|memory": ("INFO", "memory"),
    "info|clients": ("INFO", "clients"),
    "pubsub|numsub": ("PUBSUB", "NUMSUB", NAME),
    "function|list": ("FUNCTION", "LIST", "LIBRARYNAME", NAME),
    "function|load": ("FUNCTION", "LOAD", "no library"),
}
UNASKED = frozenset({"hsetnx", "sadd", "watch", "multi", "exec", "unwatch", "publish", "subscribe", "unsubscribe"})
"""No value of theirs is refused, or they change what the connection does."""


def probes(role: Role) -> dict[str, Call[object]]:
    """A call for each right that can be asked about, by its name as it stands in a rule: `hget tf:{*}:job:*`."""
    found: dict[str, Call[object]] = {}
    for word in role.plain.split():
        if (name := word.removeprefix("+")) in _PLAIN:
            found[name] = Call(_PLAIN[name], lambda reply: reply)
    for grant in role.grants:
        for right, command in _of_grant(grant):
            found[right] = Call(command, lambda reply: reply)
    return found


def _of_grant(grant: str) -> Iterator[tuple[str, tuple[Arg, ...]]]:
    words = grant.strip("()").split()
    patterns = [word.partition("~")[2] for word in words if not word.startswith("+")]
    for name in (word[1:] for word in words if word.startswith("+")):
        if name.startswith("fcall|"):
            # Without a number of keys none is looked at, and the function is not run.
            yield name, ("FCALL", name.partition("|")[2], _BAD)
            continue
        for pattern in patterns if name not in UNASKED else ():
            yield f"{name} {pattern}", _command(name, pattern.replace("*", NAME))


def _command(name: str, key: str) -> tuple[Arg, ...]:
    if name == "xread":
        return "XREAD", "STREAMS", key, "0"
    return name.upper(), key, *_AFTER_KEY[name]
