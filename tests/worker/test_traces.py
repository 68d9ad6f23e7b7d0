"""What an engine hears of a job's trace."""

from tests.support.builders import SPEC
from tests.worker.stage import staged

LEFT_OUT = f"00-{'1' * 32}-{'2' * 16}-00"


async def test_a_trace_that_is_left_out_is_so_in_the_engine(valkey_url: str) -> None:
    async with staged(valkey_url) as stage:
        _, flight = await stage.begin(spec=SPEC.model_copy(update={"trace": LEFT_OUT}))
        assert flight.request.trace == LEFT_OUT
        flight.end()
