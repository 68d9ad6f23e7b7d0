"""What a request becomes before it is stored."""

import pytest

from producer.prepare import prepare
from producer.requests import JobRequest
from protocol.messages import ModelRecord
from tests.producer.test_estimate import DEFAULTS


@pytest.mark.parametrize(("delay", "followed_s"), [(0.0, 20.0), (15.0, 5.0), (30.0, 0.0)])
def test_who_waits_for_a_delayed_job_waits_from_its_submission(delay: float, followed_s: float) -> None:
    """A worker counts from when the job could run."""
    request = JobRequest(model="m", prompt="one", delay=delay, follow_for=20.0, cancel_unfollowed=5.0)
    assert prepare(request, ModelRecord(pool="p"), DEFAULTS, "id", "nonce").spec.followed_s == followed_s


def test_who_waits_to_the_end_is_told_of_to_the_end() -> None:
    request = JobRequest(model="m", prompt="one", delay=20.0, cancel_unfollowed=5.0)
    assert prepare(request, ModelRecord(pool="p"), DEFAULTS, "id", "nonce").spec.followed_s is None
