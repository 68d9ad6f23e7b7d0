"""Generated traces: Poisson arrivals, lognormal lengths, and prompts that go on from others."""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One request of a trace, as recorded.

    Attributes:
        blocks: names of its prompt's leading blocks; equal names mean an equal prompt up to that block's end.
    """

    at_ms: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """What a generated trace is like.

    Attributes:
        a_second: requests.
        prompt, output: median and sigma of the lognormal lengths in tokens.
        longest: prompt tokens at most.
        sharing: share of the requests that go on from a recent prompt, as the turns of a conversation do.
        recent: of how many of the last prompts.
    """

    rows: int
    a_second: float
    prompt: tuple[float, float]
    output: tuple[float, float]
    longest: int = 120_000
    sharing: float = 0.4
    recent: int = 200
    block_tokens: int = 256


SHAPES = {
    "generated": Shape(6_000, 6.0, (700.0, 1.0), (130.0, 0.9)),
    "azure": Shape(19_366, 5.53, (750.0, 0.93), (129.0, 1.0), longest=14_000, sharing=0.0),
    "mooncake": Shape(12_031, 3.4, (6_909.0, 1.05), (300.0, 0.5), sharing=0.6, recent=3_000, block_tokens=512),
    "servegen": Shape(24_167, 20.0, (51.0, 1.36), (4.0, 1.5), longest=10_000, sharing=0.0),
}
"""`generated`, and what stands in for published traces: their rates, medians and tails."""


def generate(shape: Shape, seed: int) -> Iterator[Row]:
    """The rows in the order of their arrival, the first at 0 ms; equal seeds yield equal rows."""
    chance = random.Random(f"trace {seed}")  # noqa: S311 - draws a trace, guards nothing
    at_ms, fresh = 0.0, 0
    recent: deque[tuple[int, ...]] = deque(maxlen=shape.recent)
    for _ in range(shape.rows):
        prompt = min(shape.longest, max(1, round(chance.lognormvariate(0, shape.prompt[1]) * shape.prompt[0])))
        output = max(1, round(chance.lognormvariate(0, shape.output[1]) * shape.output[0]))
        count = prompt // shape.block_tokens if shape.sharing else 0
        shared = chance.choice(recent)[:count] if recent and chance.random() < shape.sharing else ()
        blocks = (*shared, *range(fresh, fresh + count - len(shared)))
        fresh += count - len(shared)
        recent.append(blocks)
        yield Row(at_ms, prompt, output, blocks)
        at_ms += chance.expovariate(shape.a_second) * 1000
