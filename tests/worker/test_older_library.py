"""A worker on a Redis whose function library is older than it is, as in the middle of an upgrade."""

import pytest
from redis import Redis

from protocol import library
from protocol.states import State
from tests.support.builders import SPEC
from tests.worker.stage import staged
from worker import attempts
from worker.traces import AttemptTrace

TRACED = SPEC.model_copy(update={"trace": f"00-{'1' * 32}-{'2' * 16}-01"})
BEFORE_TIMES = (("if ARGV[4] then", "if false then"), ("return ended_at(job)", "return { 'ok' }"))
"""What `start` and `finish` answer, now and before."""


def load_older(redis: Redis) -> None:
    source = library.source()
    for now, before in BEFORE_TIMES:
        assert now in source
        source = source.replace(now, before)
    redis.function_load(source, replace=True)


@pytest.mark.parametrize("older", [False, True])
async def test_a_traced_job_completes_and_tells_only_times_that_are_known(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch, *, older: bool
) -> None:
    traces: list[AttemptTrace] = []

    def traced(*about: object) -> AttemptTrace:
        traces.append(AttemptTrace(*about))  # type: ignore[arg-type]  # as the worker calls it
        return traces[-1]

    monkeypatch.setattr(attempts, "AttemptTrace", traced)
    if older:
        with Redis.from_url(valkey_url) as redis:
            load_older(redis)
    async with staged(valkey_url) as stage:
        handle, flight = await stage.begin(spec=TRACED)
        flight.say("One")
        flight.end()
        await stage.reaches(handle, State.COMPLETED)
        assert stage.log_text(handle) == "One"
    assert len(traces) == (0 if older else 1)
