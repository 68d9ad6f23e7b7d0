"""Where a prompt's prefix hashes stand, for the producer that makes them and for all who weigh them."""

from collections.abc import Container, Sequence

CHARS_PER_TOKEN = 4
PREFIX_CHARS: tuple[int, ...] = tuple(
    1024 * n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
)
"""Hash i stands for the first `PREFIX_CHARS[i]` characters: finer where most prompts part, coarser in long ones, so
that 18 hashes reach over half a million characters."""


def shared_tokens(prompt_tokens: int, shared: int) -> int:
    """Prompt tokens behind the first `shared` hashes (at least one), by estimate; one token is always new."""
    chars = PREFIX_CHARS[min(shared, len(PREFIX_CHARS)) - 1]
    return max(0, min(prompt_tokens - 1, chars // CHARS_PER_TOKEN))


def uncached_tokens(prompt_tokens: int, prefix: Sequence[str], *held: Container[str]) -> int:
    """What an engine must compute of a prompt whose leading hashes may be among those that it holds, by estimate."""
    shared = 0
    for name in prefix:
        if not any(name in names for names in held):
            break
        shared += 1
    return prompt_tokens - shared_tokens(prompt_tokens, shared) if shared else prompt_tokens
