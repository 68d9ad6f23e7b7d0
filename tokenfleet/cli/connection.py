"""A client for the length of a command."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

from protocol.errors import StoreUnavailable
from tokenfleet.cli.options import load_settings
from tokenfleet.signals import interruptible

if TYPE_CHECKING:
    from producer.fleet import Fleet
    from protocol.settings import Settings

T = TypeVar("T")


@contextmanager
def naming_redis(where: str) -> Iterator[None]:
    """A Redis that does not answer is named in the error; `where` has no password.

    Raises:
        StoreUnavailable: instead of one without the name.
    """
    try:
        yield
    except StoreUnavailable as error:
        hint = "Start one with `tokenfleet up`, or name another with --redis-url or TOKENFLEET_REDIS_URL."
        raise StoreUnavailable(f"no Redis answers at {where}", hint) from error


@contextmanager
def _saying_that_nothing_began() -> Iterator[None]:
    """Whoever is interrupted in the block hears so."""
    try:
        yield
    except asyncio.CancelledError:
        click.echo("nothing has begun", err=True)
        raise


def with_fleet(work: "Callable[[Fleet], Awaitable[T]]", *, fast: bool = False, patience_s: float = math.inf) -> T:
    """Connect as the settings say, wait until Redis answers, and run `work`.

    `fast` takes an event loop that is loaded a little slower and runs faster: for what lasts. `patience_s` is for what
    can do without: Redis is waited for no longer than that, and than the settings say.

    Raises:
        StoreUnavailable: Redis does not answer; the message names where, without its password.
        FleetError: what `work` raises.
    """
    settings = load_settings()
    patience_s = min(patience_s, settings.redis_patience_s)
    whole = _with_fleet(settings.model_copy(update={"redis_patience_s": patience_s}), work)
    if fast:
        import uvloop

        return uvloop.run(whole)
    return asyncio.run(whole)


async def _with_fleet(settings: "Settings", work: "Callable[[Fleet], Awaitable[T]]") -> T:
    from producer.fleet import Fleet
    from protocol import store

    where, patience_s = store.redacted(settings.store_url), settings.redis_patience_s
    async with Fleet(settings=settings) as fleet:
        with interruptible():
            with naming_redis(where), _saying_that_nothing_began():
                await store.wait_until_up(
                    fleet.redis,
                    patience_s,
                    lambda: click.echo(f"waiting for Redis at {where}, {patience_s:g} s at most …", err=True),
                )
            return await work(fleet)
