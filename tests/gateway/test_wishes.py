"""What a request asks of the fleet, from both places where it may stand."""

import pytest

from producer.gateway.auth import Grant
from producer.gateway.failures import Forbidden
from producer.gateway.wishes import Wishes
from protocol.errors import InvalidRequest
from protocol.states import Priority

GRANT = Grant("acme", "k", priorities=(Priority.MEDIUM, Priority.LOW))


def test_headers_and_members_say_the_same() -> None:
    headers = {
        "x-fleet-priority": "low",
        "x-fleet-deadline": "30",
        "x-fleet-tenant": "acme",
        "x-fleet-keep": "true",
        "x-fleet-id": "12",
        "x-fleet-best-effort": "true",
        "x-fleet-time-limit": "2.5",
        "x-fleet-wait": "1",
        "x-other": "is not ours",
    }
    member = {"priority": "low", "deadline": 30, "tenant": "acme", "keep": True, "id": "12", "best_effort": True}
    assert Wishes.of(headers, None) == Wishes.of({}, member | {"time_limit": 2.5, "wait": 1})


def test_a_member_counts_more_than_a_header() -> None:
    assert Wishes.of({"x-fleet-priority": "low"}, {"priority": "high"}).priority is Priority.HIGH


@pytest.mark.parametrize(
    ("headers", "member", "field"),
    [
        ({"x-fleet-keep": "perhaps"}, None, "fleet.keep"),
        ({"x-fleet-wait": "nan"}, None, "fleet.wait"),
        ({"x-fleet-deadline": "inf"}, None, "fleet.deadline"),
        ({"x-fleet-unheard-of": "1"}, None, "fleet"),
        ({}, {"deadline": 0}, "fleet.deadline"),
        ({}, {"best_effort": 1}, "fleet.best_effort"),
        ({}, {"wait": "1"}, "fleet.wait"),
        ({}, {"keep": -1}, "fleet.keep"),
        ({}, {"tenant": "A"}, "fleet.tenant"),
        ({}, [], "fleet"),
    ],
)
def test_what_is_no_wish(headers: dict[str, str], member: object, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Wishes.of(headers, member)
    assert refused.value.message.partition(":")[0] == field


@pytest.mark.parametrize(
    ("keep", "unfollowed_s"), [(None, 5.0), (False, 5.0), (True, None), (0, 0.0), (30, 30.0), (1.5, 1.5)]
)
def test_how_long_a_job_waits_for_its_client(keep: float | None, unfollowed_s: float | None) -> None:
    assert Wishes.of({}, {"keep": keep}).unfollowed_s(5.0) == unfollowed_s


def test_an_idempotency_key_that_may_be_no_id_stands_for_one() -> None:
    plain, odd = (Wishes.of({"idempotency-key": key}, None).id for key in ("retry-1", "\u00e9/ 1"))
    assert plain == "retry-1"
    assert odd == Wishes.of({"idempotency-key": "\u00e9/ 1"}, None).id
    assert odd != Wishes.of({"idempotency-key": "\u00e9/ 2"}, None).id
    assert Wishes.of({"idempotency-key": "a", "x-fleet-id": "b"}, None).id == "b"


def test_what_a_key_allows() -> None:
    assert Wishes().priority_for(GRANT) is Priority.MEDIUM
    assert Wishes(priority=Priority.LOW).priority_for(GRANT) is Priority.LOW
    assert Wishes().tenant_for(GRANT) == Wishes(tenant="acme").tenant_for(GRANT) == "acme"
    with pytest.raises(Forbidden):
        Wishes(priority=Priority.HIGH).priority_for(GRANT)
    with pytest.raises(Forbidden):
        Wishes().priority_for(Grant("acme", "k", priorities=()))
    with pytest.raises(Forbidden):
        Wishes(tenant="other").tenant_for(GRANT)
