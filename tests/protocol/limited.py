"""Jobs that count for an API key, and what its bucket holds of them."""

from typing import Any

import pytest

from protocol import keys
from protocol.functions import Submission
from protocol.handle import Handle
from protocol.limits import Bucket, Limits
from tests.support.builders import BODY, SHARD, SPEC, a_submission
from tests.support.driver import Driver

COST, PROMPT = SPEC.cost_tokens, SPEC.prompt_tokens
MINUTE_MS = 60_000
NAME = keys.bucket(SHARD, "t", "k")
WIDE = Limits(requests_a_minute=10, tokens_a_minute=4 * COST, jobs=100, bytes=100 * len(BODY))


def limited(own_id: str, limits: Limits = WIDE, **changes: Any) -> Submission:
    return a_submission(own_id, bucket=Bucket("k", limits), **changes)


def left(driver: Driver) -> dict[str, float]:
    """The bucket's counts."""
    counts = driver.snapshot().value(NAME, {})
    return {kind: float(counts.get(kind, 0)) for kind in ("requests", "tokens", "jobs", "bytes")}


def spent(driver: Driver, handle: Handle, kind: str, amount: float, limits: Limits = WIDE) -> bool:
    """Whether that much stands in the bucket, but for what has faded since the job was submitted, the first of all."""
    rate = getattr(limits, f"{kind}_a_minute") / MINUTE_MS
    since_ms = driver.job(handle).submitted_ms
    bucket = driver.snapshot().value(NAME)
    return float(bucket[kind]) == pytest.approx(max(0, amount - rate * (int(bucket["at"]) - since_ms)), abs=1e-6)


def runs(driver: Driver, limits: Limits = WIDE, **changes: Any) -> tuple[Handle, int]:
    return driver.running(bucket=Bucket("k", limits), **changes)
