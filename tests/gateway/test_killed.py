"""kill -9 of a gateway: what becomes of a job whose client waited there for the whole answer."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx

from producer.fleet import Fleet
from protocol.errors import UnknownJob
from protocol.messages import JobRecord
from protocol.states import State
from protocol.wire import loads
from tests.gateway.serving import CHAT, MODEL
from tests.gateway.test_cli import Running, command
from tests.support.waiting import eventually

SOON_S = 0.5
_IMPATIENT = f"""
from producer.gateway import inference
from tokenfleet.cli import main
inference.FOLLOWED_AGAIN_S = {SOON_S}
main()
"""


@contextmanager
def impatient(redis_url: str) -> Iterator[Running]:
    """A gateway's process whose jobs end soon once nobody follows them."""
    arguments = command(redis_url, "--open", "--leave", str(SOON_S))[3:]
    with subprocess.Popen([sys.executable, "-c", _IMPATIENT, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield Running(process, loads(process.stdout.readline())["url"])
        finally:
            process.kill()


async def test_the_job_of_a_whole_answer_ends_with_its_gateway(sim_url: str) -> None:
    clock, handle = asyncio.get_running_loop().time, f"{MODEL}.0.default.orphan"
    body = CHAT | {"max_tokens": 30_000, "ignore_eos": True, "fleet": {"id": "orphan"}}

    async def record() -> JobRecord | None:
        with suppress(UnknownJob):
            return (await fleet.job(handle)).record
        return None

    async def reaches(state: State) -> JobRecord | None:
        seen = await record()
        return seen if seen and seen.state is state else None

    async with Fleet(sim_url) as fleet, httpx.AsyncClient(trust_env=False, timeout=60) as http:
        with impatient(sim_url) as gateway:
            asked = asyncio.create_task(http.post(f"{gateway.url}/v1/chat/completions", json=body))
            await eventually(lambda: reaches(State.RUNNING), timeout_s=20)
            # As long as its gateway waits, it is followed.
            long_after = clock() + 3 * SOON_S
            await eventually(lambda: clock() > long_after)
            assert await reaches(State.RUNNING)
        await asyncio.gather(asked, return_exceptions=True)
        ended = await eventually(lambda: reaches(State.CANCELLED), timeout_s=20)
    assert ended
    assert ended.error == "unfollowed"
