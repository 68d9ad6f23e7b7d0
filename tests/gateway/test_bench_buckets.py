"""`make bench-buckets` tells buckets that fill again from those that only begin full."""

import pytest

from bench.buckets import CUSTOMERS, Got, judge

SECONDS = 60.0


def met(bursts: float, refilled: float) -> list[bool]:
    """Whether each target is met where every key gets so many bursts, and such a share of what its bucket refills."""
    found = []
    for limits in CUSTOMERS:
        share = int((limits.tokens_a_minute or limits.requests_a_minute) * (bursts + refilled * 59.9 / 60))
        got = {"tokens": share, "requests": 1} if limits.tokens_a_minute else {"requests": share}
        found.append([Got(**got, began_s=0.0, ended_s=60.0, asked_s=59.9)])
    return [target.met for target in judge(found, SECONDS)[0]]


@pytest.mark.parametrize(
    ("bursts", "refilled", "expected"),
    [
        (1, 1, [True, True]),
        (1, 0, [True, False]),
        (1, 0.9, [True, False]),
        (2, 1, [False, True]),
        (1, 1.1, [False, True]),
    ],
)
def test_what_is_too_much_and_what_too_little(bursts: float, refilled: float, expected: list[bool]) -> None:
    assert met(bursts, refilled) == expected
