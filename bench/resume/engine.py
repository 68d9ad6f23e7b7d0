"""A worker on the simulated engine that writes in many scripts: most of its characters take several bytes."""

import sys
from collections.abc import AsyncGenerator
from string import ascii_lowercase, ascii_uppercase

from bench import parts
from protocol import log
from protocol.settings import Settings
from protocol.wire import JsonObject
from worker import process
from worker.engine.base import EngineRequest
from worker.engine.sim.engine import SimEngine
from worker.options import WorkerOptions

SLOTS = 64
SPEED = 0.5
"""A worker gathers what comes within a moment into one event; of a slow answer there are more."""
_SCRIPTS = "бвгджзикл東西南北風雨雪月花🌊🐟🦀🐙🌙🔥🍎🎻"
"""Characters of two, three and four bytes; one for each letter."""
_TABLE = str.maketrans(ascii_lowercase + ascii_uppercase, 2 * _SCRIPTS)


class ManyScripts(SimEngine):
    """Says what the simulated engine says, in other letters."""

    async def generate(self, request: EngineRequest) -> AsyncGenerator[JsonObject, None]:
        """Run one request; see `Engine.generate`."""
        async for chunk in super().generate(request):
            for choice in chunk.get("choices", ()):
                if content := choice["delta"].get("content"):
                    choice["delta"]["content"] = content.translate(_TABLE)
            yield chunk


def main() -> None:
    """Run the worker for the Redis that the command line names."""
    log.configure("warning", "json")
    options = WorkerOptions(engine=ManyScripts(slots=SLOTS, speed=SPEED), models=(parts.MODEL,), slots=SLOTS)
    sys.exit(process.main(Settings(redis_url=sys.argv[1]), options))


if __name__ == "__main__":
    main()
