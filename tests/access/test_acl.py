"""The users of the ACL file: what each may do is what it needs, and nothing more."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError

from protocol import keys, library, reads
from protocol.access import Role
from protocol.errors import NotAllowed
from protocol.states import State
from tests.access.duties import DUTIES, Duty, dead, roles
from tests.access.fleet import login
from tests.protocol.branches import HANDLE
from tests.support.builders import SHARD, a_submission
from tests.support.driver import Driver
from tests.support.servers import Server

USER, PASSWORD = "someone", "someone"
ROLES = sorted(DUTIES)


def as_user(driver: Driver, role: Role) -> Redis:
    """A client with this role's rights; close it."""
    rules = ("reset", "on", f">{PASSWORD}", *role.rules.split())
    driver.redis.execute_command("ACL", "SETUSER", USER, *rules)  # type: ignore[no-untyped-call]  # redis-py 5
    port = driver.redis.connection_pool.connection_kwargs["port"]
    return Redis(port=port, username=USER, password=PASSWORD, socket_timeout=10)


def refused(driver: Driver, role: Role, duty: Duty) -> str | None:
    """The command of the duty that the role may not give; None when it may do all of it."""
    driver.redis.flushdb()
    duty.prepare(driver)
    calls = duty.calls(driver)
    with as_user(driver, role) as client:
        for call in calls:
            try:
                Driver(client).run(call)
            except NotAllowed:
                return str(call.command[:2])
    return None


@pytest.mark.parametrize("name", ROLES)
def test_a_role_may_do_all_its_duties(real_driver: Driver, name: str) -> None:
    role = roles()[name]
    problems = {duty.name: refused(real_driver, role, duty) for duty in DUTIES[name]}
    real_driver.redis.flushdb()
    assert {duty: problem for duty, problem in problems.items() if problem} == {}


@pytest.mark.parametrize("name", ROLES)
def test_a_role_needs_each_of_its_rights(real_driver: Driver, name: str) -> None:
    """Take away one command on one kind of key, and there is a duty that it can't do."""
    needless = [
        what
        for what, less in _lesser(roles()[name])
        if not any(refused(real_driver, less, duty) for duty in DUTIES[name])
    ]
    real_driver.redis.flushdb()
    assert needless == []


def test_a_replay_after_a_restart_is_numbered_anew(real_driver: Driver) -> None:
    """The library was loaded again: a producer that gives a job its number needs to see the last one."""
    real_driver.redis.flushdb()
    dead(real_driver)
    before = real_driver.job(HANDLE).attempt
    real_driver.redis.function_load(library.source(), replace=True)
    with as_user(real_driver, roles()["producer-t"]) as client:
        assert Driver(client).submitted(a_submission(nonce="new")).created
    assert real_driver.job(HANDLE).attempt > before + 100_000
    real_driver.redis.flushdb()


def test_a_replay_that_is_refused_its_number_loses_nothing(real_driver: Driver) -> None:
    real_driver.redis.flushdb()
    dead(real_driver)
    role = roles()["producer-t"]
    clock = keys.clock(SHARD).replace("pool.0", "*")
    fewer = [grant for grant in role.grants if f"+hincrby ~{clock})" not in grant]
    assert len(fewer) == len(role.grants) - 1
    hidden = replace(role, grants=[*fewer, f"(+hmget +hset ~{clock})"])
    with as_user(real_driver, hidden) as client, pytest.raises(NotAllowed):
        Driver(client).submitted(a_submission(nonce="new"))
    assert real_driver.run(reads.outcome(HANDLE)) is not None
    assert real_driver.run(reads.dead_mark(HANDLE)) is not None
    assert real_driver.job(HANDLE).state is State.FAILED
    real_driver.redis.flushdb()


def _lesser(role: Role) -> Iterator[tuple[str, Role]]:
    for number, grant in enumerate(role.grants):
        words = grant.strip("()").split()
        commands, patterns = [w for w in words if w[0] == "+"], [w for w in words if w[0] != "+"]
        others = [*role.grants[:number], *role.grants[number + 1 :]]
        for what, kept in _cuts(commands, patterns):
            selectors = [f"({' '.join([*some, *on])})" for some, on in kept if some and on]
            yield what, replace(role, grants=[*others, *selectors])


def _cuts(commands: list[str], patterns: list[str]) -> Iterator[tuple[str, list[tuple[list[str], list[str]]]]]:
    """What was taken away, and what is left. A function's keys are needed together with the other functions'."""
    if commands[0].startswith("+fcall"):
        yield from ((c, [([x for x in commands if x != c], patterns)]) for c in commands)
        yield from ((f"calls: {p}", [(commands, [x for x in patterns if x != p])]) for p in patterns)
        return
    for command in commands:
        rest = [other for other in commands if other != command]
        for pattern in patterns:
            left = [other for other in patterns if other != pattern]
            yield f"{command} {pattern}", [(rest, patterns), ([command], left)]


def key(kind: str) -> str:
    return f"{keys.prefix(SHARD)}{kind}"


NEVER = [
    *("KEYS *", "SCAN 0", "RANDOMKEY", "DBSIZE", "FLUSHALL", "FLUSHDB", "CONFIG GET requirepass", "CONFIG SET dir /"),
    *("INFO", "MONITOR", "SHUTDOWN", "ACL LIST", "ACL SETUSER x", "CLIENT LIST", "CLIENT KILL ID 1"),
    # It would tell the names of all tenants' jobs as they change.
    "CLIENT TRACKING ON",
    *("SAVE", "REPLICAOF NO ONE", "MODULE LIST", "SLOWLOG GET", "FUNCTION FLUSH", "SCRIPT FLUSH", "LATENCY RESET"),
    *("EVAL return(1) 0", "EVALSHA x 0", "PSUBSCRIBE *", "SUBSCRIBE other", "PUBLISH other x", "PUBSUB CHANNELS"),
    f"COPY {key('result:evil:a')} {key('result:acme:a')}",
    f"RENAME {key('result:evil:a')} {key('result:acme:a')}",
    f"SORT {key('lane:high')} BY nosort GET {key('result:*')}",
    "SET elsewhere x",
    "GET elsewhere",
    *(f"HGETALL {keys.API_KEYS}", f"HKEYS {keys.API_KEYS}", f"HSET {keys.API_KEYS} a b", f"HDEL {keys.API_KEYS} a"),
]
FOREIGN = [
    *(f"HGETALL {key('job:evil:a')}", f"HMGET {key('job:evil:a')} state", f"GET {key('body:evil:a')}"),
    *(f"GET {key('result:evil:a')}", f"XRANGE {key('tokens:evil:a')} - +", f"DEL {key('job:evil:a')}"),
    *(f"SUBSCRIBE {key('tokens:evil:a')}", f"EXISTS {key('job:evil:a')}", f"XREAD STREAMS {key('done:evil:me')} 0"),
    *(f"HGETALL {key('tenant:evil')}", f"ZRANGE {key('lane:high')} 0 -1", f"XRANGE {key('dead')} - +"),
    *(f"HGETALL {key('clock')}", f"ZRANGE {key('due')} 0 -1", f"XRANGE {key('inbox:x.worker-1')} - +"),
    *(f"HGETALL {key('bucket:evil:k')}", f"HSET {key('bucket:evil:k')} tokens 0", f"DEL {key('bucket:acme:k')}"),
    f"HGET {keys.API_KEYS} a",
    # The keys that are named are its own, the job that is meant is not.
    f"FCALL tf1_cancel 1 {key('clock')} evil:a",
    f"FCALL tf1_forget 2 {key('job:evil:a')} {key('body:evil:a')} evil:a 1",
    f"FCALL tf1_start 3 {key('job:acme:a')} {key('body:acme:a')} {key('workers')} acme:a 1 w1",
    f"FCALL tf1_tick 1 {key('leader')} x 1 1 1 1 1 1",
    *("HGETALL tf:{batches}:batch:evil:batch_1", "ZREVRANGE tf:{batches}:batches:evil 0 -1"),
    *("ZRANGE tf:{batches}:living 0 -1", "FCALL tf1_batch_cancel 1 tf:{batches}:batch:evil:batch_1"),
    "FCALL tf1_batch_take 2 tf:{batches}:batch:acme:batch_1 tf:{batches}:living acme:batch_1 me 1",
]
FORBIDDEN = {
    "producer-acme": [*FOREIGN, f"PUBLISH {key('tokens:evil:a')} x", f"GET {key('leader')}", "FUNCTION LOAD x"],
    "subscriber-acme": [
        *FOREIGN,
        *(f"SET {key('result:acme:a')} x", f"DEL {key('job:acme:a')}", f"HSET {key('job:acme:a')} state x"),
        *(f"PUBLISH {key('tokens:acme:a')} x", f"GET {key('body:acme:a')}", "HGETALL tf:models"),
        *(f"XADD {key('tokens:acme:a')} * f x", f"FCALL tf1_cancel 1 {key('job:acme:a')} acme:a"),
    ],
    "worker-worker-1": [
        *(f"XRANGE {key('inbox:x.worker-2')} - +", f"HSET {key('worker:x.worker-2')} held 0", f"GET {key('leader')}"),
        *(f"XADD {key('inbox:x.worker-2')} * k abort", f"SADD {key('prefixes:x.worker-2')} a", "FUNCTION LOAD x"),
        *(f"GET {key('result:acme:a')}", f"ZRANGE {key('lane:high')} 0 -1", f"ZREM {key('lane:high')} a"),
        f"HGET {keys.API_KEYS} a",
        *(f"DEL {key('tokens:acme:a')}", f"SUBSCRIBE {key('tokens:acme:a')}", f"HGETALL {key('job:acme:a')}"),
        *(f"FCALL tf1_submit 1 {key('job:acme:a')}", f"FCALL tf1_assign 1 {key('leader')}", f"DEL {key('workers')}"),
        f"FCALL tf1_leave 3 {key('workers')} {key('worker:x.worker-2')} {key('inbox:x.worker-2')} x.worker-2",
    ],
    "gateway": [f"HVALS {keys.API_KEYS}", f"HSCAN {keys.API_KEYS} 0", f"DEL {keys.API_KEYS}", f"GET {key('leader')}"],
    "scheduler": [
        f"HGET {keys.API_KEYS} a",
        *(f"GET {key('result:acme:a')}", f"XRANGE {key('tokens:acme:a')} - +", f"SUBSCRIBE {key('tokens:acme:a')}"),
        *(f"FCALL tf1_submit 1 {key('job:acme:a')}", f"HGETALL {key('job:acme:a')}", "FUNCTION DELETE tokenfleet_1"),
        *("HSET tf:models a b", f"DEL {key('clock')}", f"DEL {key('lane:high')}"),
    ],
    "runner": [
        f"HGET {keys.API_KEYS} a",
        *(f"GET {key('leader')}", f"FCALL tf1_assign 1 {key('leader')}", f"ZRANGE {key('lane:high')} 0 -1"),
        *(f"XRANGE {key('inbox:x.worker-1')} - +", "HSET tf:models a b", "FUNCTION LOAD x", f"DEL {key('clock')}"),
        *(f"FCALL tf1_emit 1 {key('tokens:acme:a')}", "SET arq:job:1 x", "GET elsewhere", "KEYS arq:*"),
    ],
    "metrics": [
        *(f"GET {key('body:acme:a')}", f"GET {key('result:acme:a')}", f"XRANGE {key('tokens:acme:a')} - +"),
        *(f"SUBSCRIBE {key('tokens:acme:a')}", f"HSET {key('fleet')} a b", f"FCALL tf1_wake 1 {key('events')}"),
        *(f"ZREM {key('lane:high')} a", f"HSET {key('job:acme:a')} state x", "FUNCTION LOAD x"),
    ],
    "default": ["GET x", "TIME", f"HGETALL {keys.MODELS}"],
}


@pytest.mark.parametrize("user", FORBIDDEN)
def test_what_a_role_has_no_need_of_is_refused(guarded_server: Server, user: str) -> None:
    with login(guarded_server, "operator") as operator:
        operator.function_load(_library(), replace=True)
        operator.set(key("result:evil:a"), "secret")
        operator.hset(key("job:evil:a"), mapping={"state": "queued", "priority": "high", "keep": "1", "deadline": "1"})
    # arq counts the keys before it starts.
    never = [line for line in NEVER if (user, line) != ("runner", "DBSIZE")]
    with guarded_server.client() if user == "default" else login(guarded_server, user) as client:
        allowed = [line for line in [*never, *FORBIDDEN[user]] if not _is_refused(client, line)]
    assert allowed == []


def test_what_is_there_and_what_is_not_are_refused_alike(guarded_server: Server) -> None:
    with login(guarded_server, "operator") as operator:
        operator.set(key("result:evil:there"), "secret")
    told = set()
    with login(guarded_server, "producer-acme") as client:
        for own_id in ("there", "never"):
            with pytest.raises(NoPermissionError) as refusal:
                client.get(key(f"result:evil:{own_id}"))
            told.add(str(refusal.value))
    assert len(told) == 1


def _library() -> str:
    from protocol import library

    return library.source()


def _is_refused(client: Redis, line: str) -> bool:
    try:
        client.execute_command(*line.split())  # type: ignore[no-untyped-call]  # redis-py 5 is untyped here
    except NoPermissionError:
        return True
    except Exception as error:  # noqa: BLE001 - whatever else it is, it is no refusal
        return any(sign in str(error) for sign in ("ACL failure in script", "The user executing the script can't"))
    return False
