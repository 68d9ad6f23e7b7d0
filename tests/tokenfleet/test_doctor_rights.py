"""`tokenfleet doctor` as users of Redis with the rights of roles, and with less."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from protocol import access
from protocol.access import Role
from protocol.access_probe import UNASKED, probes
from tests.support.driver import Driver
from tests.support.servers import Server
from tests.tokenfleet.doctoring import examined, levels, running, well
from tokenfleet.doctor.rights import roles_for


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("good")) as server:
        yield server


@pytest.fixture
def driver(good: Server) -> Iterator[Driver]:
    """On the well set-up server, as it was before each test."""
    with good.client() as client:
        client.flushall()
        yield Driver(client)


@dataclass
class Users:
    """Users that a test makes on a server, gone at its end."""

    driver: Driver
    names: list[str] = field(default_factory=list)

    def add(self, name: str, role: Role, *more: str) -> None:
        words = ("ACL", "SETUSER", name, "reset", "on", ">pw", *role.rules.split(), *more)
        self.driver.redis.execute_command(*words)  # type: ignore[no-untyped-call]  # redis-py 5 is untyped here
        self.names.append(name)


@pytest.fixture
def users(driver: Driver) -> Iterator[Users]:
    made = Users(driver)
    yield made
    driver.redis.execute_command("ACL", "DELUSER", *made.names)  # type: ignore[no-untyped-call]  # as above


def as_user(server: Server, name: str) -> str:
    return server.url.replace("redis://", f"redis://{name}:pw@")


@pytest.mark.parametrize(
    "name", ["producer-t", "subscriber-t", "worker-w1", "scheduler", "gateway", "runner", "metrics"]
)
async def test_the_users_of_the_acl_file_may_do_their_roles(
    good: Server, driver: Driver, users: Users, name: str
) -> None:
    well(driver)
    before = sorted(driver.redis.scan_iter())
    users.add(name, access.users(["t"], ["w1"])[name])
    findings = await examined(as_user(good, name))
    assert [finding.level for finding in findings if finding.check == "acl"] == ["ok"]
    assert levels(findings)["reach"] != "fail"
    assert sorted(driver.redis.scan_iter()) == before


async def test_a_right_that_is_missing_is_named(good: Server, driver: Driver, users: Users) -> None:
    well(driver)
    role = access.worker("w1")
    less = Role(role.plain, [grant.replace("+xread ", "") for grant in role.grants], role.channels)
    users.add("worker-w1", less)
    (found,) = [finding for finding in await examined(as_user(good, "worker-w1")) if finding.check == "acl"]
    assert (found.level, "xread tf:{*}:inbox:*.w1" in found.said) == ("fail", True)
    assert "tokenfleet acl" in found.advice


UNSEEN = {"server": "info", "config": "config", "library": "function", "fleet": "hgetall"}
"""What can't be seen without a command."""


@pytest.mark.parametrize("check", UNSEEN)
async def test_what_a_user_may_not_ask_is_said_to_be_unseen(
    good: Server, driver: Driver, users: Users, check: str
) -> None:
    well(driver)
    users.add("curious", access.metrics(), "clearselectors", "~*", "&*", "+@all", f"-{UNSEEN[check]}")
    findings = await examined(as_user(good, "curious"), role="subscriber")
    unseen = {finding.check: finding for finding in findings if "can't be seen" in finding.said}
    assert unseen.keys() == {check}
    assert (unseen[check].level, "operator's user" in unseen[check].advice) == ("warn", True)
    # All else is judged as ever, and nothing that is unseen is called well.
    gone = {
        "server": {"version", "primary", "memory", "eviction", "aof"},
        "config": {"fsync", "buffers", "door"},
        "library": set(),
        "fleet": {"leader", "standby", "workers", "engine", "models", "dead"},
    }[check]
    as_ever = levels(await examined(good.url, role="subscriber"))
    assert levels(findings).keys() ^ as_ever.keys() == gone | ({check} if check != "library" else set())


async def test_a_user_is_held_against_another_role_by_name(good: Server, driver: Driver, users: Users) -> None:
    well(driver)
    users.add("metrics", access.metrics())
    assert levels(await examined(as_user(good, "metrics")))["acl"] == "ok"
    assert levels(await examined(as_user(good, "metrics"), role="scheduler"))["acl"] == "fail"


async def test_a_wrong_password_is_told(good: Server, driver: Driver, users: Users) -> None:
    users.add("metrics", access.metrics())
    (found,) = [f for f in await examined(as_user(good, "metrics").replace(":pw@", ":no@")) if f.check == "reach"]
    assert (found.level, "password" in found.said) == ("fail", True)
    del driver


@pytest.mark.parametrize("name", list(access.users(["t"], ["w1"])))
def test_every_right_is_asked_about(name: str) -> None:
    """A new command in a role needs an answer here: how it is asked without changing anything."""
    role = access.users(["t"], ["w1"])[name]
    asked = {right.split()[0] for right in probes(role)}
    granted = {word[1:] for grant in role.grants for word in grant.strip("()").split() if word.startswith("+")}
    assert granted - asked <= UNASKED


def test_a_user_is_asked_for_the_role_that_it_is_called_after() -> None:
    assert list(roles_for("worker-gpu-0", "", "")) == ["worker"]
    assert list(roles_for("metrics", "", "")) == ["metrics"]
    assert list(roles_for("default", "", "")) == ["scheduler", "worker", "gateway", "runner"]
    assert list(roles_for("default", "producer", "acme")) == ["producer"]
    assert any("job:acme:" in grant for grant in roles_for("default", "producer", "acme")["producer"].grants)
    assert any("inbox:*.gpu-0" in grant for grant in roles_for("worker-gpu-0", "", "")["worker"].grants)
