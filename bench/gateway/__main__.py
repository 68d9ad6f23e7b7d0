"""`make bench-gateway`: what gateways add to an engine's time to first byte, and what an idle stream costs them.

The simulated engine stands behind one OpenAI HTTP server. The same streams go straight to it, through our gateway
(whose fleet's worker asks that very server), and through two peers in front of it; in turns, on one machine. What the
engine itself took to a request's first token, it notes, and that is taken off: a step of 50 ms would hide the rest.
"""

import argparse
import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress

import aiohttp
import uvloop

from bench.gateway import client, sides
from bench.gateway.client import Chat
from bench.gateway.sides import Start
from bench.gateway.table import Row, show_rows
from bench.report import Target, show

STREAMS, CHATS, ROUNDS = 50, 3, 5
SPEED = "0.16"
"""Of the simulated H100, whose step with 50 sequences takes 8 ms: 20 tokens a second for each stream."""
IDLE = 1000
STRAIGHT, OURS = "the engine, straight", "tokenfleet"
STARTS: Mapping[str, Start] = {OURS: sides.ours, "litellm": sides.litellm, "vllm-router": sides.router}
PROGRAMS = {"litellm": sides.LITELLM, "vllm-router": sides.ROUTER}


def main() -> None:
    """Run the measurement."""
    parser = argparse.ArgumentParser(prog="make bench-gateway", description=__doc__)
    parser.add_argument("--alone", action="store_true", help="without the peers")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    options = parser.parse_args()
    client.limit_files()
    missing = [name for name, program in PROGRAMS.items() if not program.exists()]
    names = [name for name in STARTS if name == OURS or not (options.alone or name in missing)]
    busy, rows = os.getloadavg()[0], uvloop.run(_measure(names))
    show_rows(rows, missing, as_json=options.json)
    title = f"{STREAMS} streams of 20 tokens/s, medians of {ROUNDS} rounds in turns"
    more = {"sides": {name: row.figures() for name, row in rows.items()}}
    # On a machine that others use too, what is measured is how long a process waits for its turn.
    show(title, _targets(rows[OURS], rows[STRAIGHT]), {"load average before": busy}, as_json=options.json, more=more)


async def _measure(names: Sequence[str]) -> dict[str, Row]:
    rounds = await _firsts(names)
    rows = {name: Row.of(found) for name, found in rounds.items()}
    for name in names:
        # Of a peer that is too slow to open so many, nothing is told.
        with suppress(*(() if name == OURS else (TimeoutError,))):
            rows[name].idle_kb = await _idle_kb(STARTS[name])
    return rows


async def _firsts(names: Sequence[str]) -> dict[str, list[list[float]]]:
    """For each side and round, what each chat's first byte took beyond the engine's own time, in ms."""
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(sides.engine("--speed", SPEED))
        ports = {STRAIGHT: engine.port}
        for name in names:
            ports[name] = (await stack.enter_async_context(STARTS[name](engine.port))).port
        session = await stack.enter_async_context(aiohttp.ClientSession())
        found: dict[str, list[list[float]]] = {name: [] for name in ports}
        for port in ports.values():
            await client.load(port, f"warm {port}", STREAMS, 1)
        for number in range(ROUNDS):
            for name in sorted(ports, reverse=number % 2 == 1):
                chats = await client.load(ports[name], f"{name} {number}", STREAMS, CHATS)
                found[name].append(await _beyond(session, engine.port, chats))
        return found


async def _beyond(session: aiohttp.ClientSession, engine_port: int, chats: Sequence[Chat]) -> list[float]:
    async with session.get(f"http://127.0.0.1:{engine_port}/took") as answer:
        took: dict[str, float] = await answer.json()
    return [1000 * (chat.first_s - took[chat.name]) for chat in chats]


async def _idle_kb(start: Start) -> float:
    """By how much a server grows for each stream that has said one token and then says nothing."""
    async with sides.engine("--hush") as engine, start(engine.port) as side:
        for line in await client.idle(side.port, client.AT_ONCE):
            line.close()
        before = side.resident_bytes()
        lines = await client.idle(side.port, IDLE)
        await asyncio.sleep(1)
        grown = side.resident_bytes() - before
        for line in lines:
            line.close()
    return grown / 1024 / IDLE


def _targets(ours: Row, straight: Row) -> list[Target]:
    return [
        Target("added time to first byte p50, ms", ours.p50 - straight.p50, 8, "lower"),
        Target("added time to first byte p99, ms", ours.p99 - straight.p99, 25, "lower"),
        Target(f"memory a stream at {IDLE:,} idle ones, KB", ours.idle_kb, 60, "lower"),
    ]


if __name__ == "__main__":
    main()
