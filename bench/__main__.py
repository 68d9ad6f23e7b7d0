"""`make bench`: throughput, latency, token path and Redis time, beside arq and the bare floors, on one server."""

import argparse
import asyncio

from bench import drain, latency, parts, token_path
from bench.report import Target, show


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    options = parser.parse_args()
    targets, figures = asyncio.run(_measure())
    show("bench, medians of rounds in turns on one Valkey with AOF everysec", targets, figures, as_json=options.json)


async def _measure() -> tuple[list[Target], dict[str, float]]:
    async with parts.valkey() as url:
        queue = await drain.measure(url)
        p50, p99, floor = await latency.measure(url)
        path = await token_path.measure(url)
    targets = [
        Target("jobs/s over arq's with poll_delay 10 ms", queue.ours / queue.arq_poll_10ms, 1.5, "higher"),
        Target("jobs/s over arq's with defaults", queue.ours / queue.arq_defaults, 5, "higher"),
        Target("submit to start, p50 ms at 200 jobs/s", p50, 5, "lower"),
        Target("tokens/s over bare pipelined PUBLISH, four a frame", path.gathered / path.bare, 0.5, "higher"),
        Target("Redis CPU µs a job", queue.redis_us_a_job, 60, "lower"),
    ]
    figures = {
        "jobs/s": queue.ours,
        "jobs/s, arq with poll_delay 10 ms": queue.arq_poll_10ms,
        "jobs/s, arq with defaults": queue.arq_defaults,
        "jobs/s, floor: ZADD, ZPOPMIN, SET in pipelines": queue.bare_rate,
        "submits/s, in pipelines": queue.submit_rate,
        "submits/s, arq, one after another": queue.arq_enqueue_rate,
        "submit to start, p99 ms at 200 jobs/s": p99,
        "one hop, p50 ms, floor: XADD to a blocked XREAD": floor,
        "Redis commands a job, from outside": queue.commands_a_job,
        "Redis CPU µs a job, floor: ZADD, ZPOPMIN, SET": queue.bare_us_a_job,
        "tokens/s over bare pipelined PUBLISH, one frame a token": path.each / path.bare,
        "tokens/s through the token path, one frame a token": path.each,
        "tokens/s through the token path, four a frame": path.gathered,
        "tokens/s, floor: bare pipelined PUBLISH": path.bare,
    }
    return targets, figures


if __name__ == "__main__":
    main()
