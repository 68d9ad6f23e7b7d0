"""What a job carries of its caller's trace: a stored job is read whatever stands there."""

import pytest

from protocol import wire
from protocol.messages import JobSpec
from protocol.traceparent import is_traceparent

NAMED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def read(trace: object) -> str:
    stored = {"model": "m", "endpoint": "/v1/completions", "trace": trace}
    return JobSpec.model_validate_json(wire.dumps(stored)).trace


@pytest.mark.parametrize("trace", ["", NAMED, NAMED[:-1] + "0"])
def test_a_traceparent_is_read_as_it_stands(trace: str) -> None:
    assert read(trace) == trace == JobSpec(model="m", endpoint="/v1/completions", trace=trace).trace


@pytest.mark.parametrize(
    "trace", [None, 7, [NAMED], NAMED + "\n", NAMED + "-x", NAMED[1:], NAMED.upper(), NAMED.replace("00-", "01-"), "é"]
)
def test_what_is_none_reads_as_empty(trace: object) -> None:
    assert read(trace) == ""
    assert not is_traceparent(trace)


@pytest.mark.parametrize("place", [slice(3, 35), slice(36, 52)])
def test_an_id_of_zeros_names_nothing_and_one_with_any_other_digit_does(place: slice) -> None:
    def with_id(digits: str) -> str:
        return NAMED[: place.start] + digits + NAMED[place.stop :]

    size = place.stop - place.start
    nameless = with_id("0" * size)
    assert read(nameless) == ""
    assert not is_traceparent(nameless)
    for at in range(size):
        named = with_id("0" * at + "1" + "0" * (size - at - 1))
        assert read(named) == named
        assert is_traceparent(named)
