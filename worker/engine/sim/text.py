"""What a simulated model says: readable words and vectors that follow from the request's content alone."""

from hashlib import blake2b
from math import sqrt

WORDS = (
    "amber",
    "anchor",
    "arrow",
    "autumn",
    "basin",
    "beacon",
    "birch",
    "breeze",
    "bridge",
    "canyon",
    "cedar",
    "circle",
    "cloud",
    "cobalt",
    "copper",
    "coral",
    "crystal",
    "delta",
    "ember",
    "falcon",
    "fern",
    "field",
    "forest",
    "garden",
    "glacier",
    "granite",
    "harbor",
    "hazel",
    "horizon",
    "island",
    "ivory",
    "juniper",
    "lantern",
    "lattice",
    "lemon",
    "linen",
    "maple",
    "marble",
    "meadow",
    "mirror",
    "morning",
    "mountain",
    "nectar",
    "ocean",
    "olive",
    "orchid",
    "pebble",
    "pepper",
    "pine",
    "prairie",
    "quartz",
    "rain",
    "ribbon",
    "river",
    "saffron",
    "silver",
    "spruce",
    "stone",
    "summer",
    "thunder",
    "timber",
    "valley",
    "velvet",
    "willow",
)  # fmt: skip - one word a line would hide the list
"""64 of them: one token each."""

SHORTEST_TOKENS, LONGEST_TOKENS = 16, 256


def seed_of(content: bytes, index: int = 0) -> int:
    """64 bits that stand for the content and the number of the choice."""
    return int.from_bytes(blake2b(content, digest_size=8, salt=index.to_bytes(4, "big")).digest(), "big")


def natural_tokens(seed: int) -> int:
    """How long the answer gets when no limit cuts it."""
    return SHORTEST_TOKENS + seed % (LONGEST_TOKENS - SHORTEST_TOKENS + 1)


def word(seed: int, position: int) -> str:
    """The token at `position`; tokens simply concatenate to the text."""
    # An odd step visits all words before one repeats; a sentence has ten.
    chosen = WORDS[((seed >> 8) + position * (2 * (seed & 15) + 1)) % len(WORDS)]
    begins, ends = position % 10 == 0, position % 10 == 9
    return (" " if position else "") + (chosen.capitalize() if begins else chosen) + ("." if ends else "")


def unit_vector(content: bytes, dimensions: int) -> list[float]:
    """An embedding: equal for equal content, of length 1."""
    digests = (blake2b(content, digest_size=64, salt=block.to_bytes(4, "big")) for block in range(dimensions // 64 + 1))
    octets = b"".join(digest.digest() for digest in digests)[:dimensions]
    raw = [octet - 127.5 for octet in octets]
    length = sqrt(sum(value * value for value in raw))
    return [value / length for value in raw]


def chained_hashes(content: bytes, block_bytes: int) -> tuple[bytes, ...]:
    """One hash for each full block of the content, each over all before it too."""
    running, hashes = blake2b(digest_size=8), []
    for start in range(0, len(content) - block_bytes + 1, block_bytes):
        running.update(content[start : start + block_bytes])
        hashes.append(running.digest())
    return tuple(hashes)
