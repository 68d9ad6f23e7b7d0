"""Follows jobs and waits for their ends: the channel for speed, the log and the stored result for truth."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar, cast

from redis.asyncio import Redis

from producer.events import End, Event, Restart, whole
from producer.follow import BEHIND, Place, Sealed, Step
from producer.hub import Hub, Subscription
from protocol import frames, functions, keys, reads
from protocol.call import Call, patiently, run, run_all, value_of
from protocol.errors import FleetError, InvalidRequest, UnknownJob, WaitTimeout
from protocol.frames import parse_position
from protocol.handle import Handle
from protocol.messages import Frame, Outcome
from protocol.reads import Standing

FRAMES_A_READ = 50
"""What a reader holds decoded, however slow it is: a frame of 300 bytes takes 3 KB so."""

_End = tuple[Outcome, Standing]
"""Of a job: its outcome, and how it stands."""
A = TypeVar("A")
B = TypeVar("B")


class Reader:
    """All that reads a job's tokens and result, over one hub."""

    def __init__(self, redis: Redis, hub: Hub, patience_s: float) -> None:
        """Read over `redis`; wait `patience_s` seconds for one that is away."""
        self._redis = redis
        self._hub = hub
        self._patience_s = patience_s

    async def result(self, handle: Handle, timeout_s: float | None) -> Outcome:
        """Wait for a job's end.

        Raises:
            WaitTimeout: it did not end in time.
            UnknownJob: there is no such job, or no more.
        """
        try:
            async with asyncio.timeout(timeout_s):
                end = await self._ended(handle) or await self._wait_for_end(handle)
        except TimeoutError:
            raise WaitTimeout(f"the job did not end within {timeout_s:g} s", "It goes on; ask again later.") from None
        # Not within the time limit: a job that is forgotten has been read.
        return await self._taken(handle, end)

    async def _wait_for_end(self, handle: Handle) -> _End:
        with self._hub.subscribe(keys.tokens(handle)) as subscription:
            while True:
                heard = await subscription.hear()
                sealed = heard is None or any(frames.is_seal(message) for message in heard)
                if sealed and (end := await self._ended(handle)):
                    return end

    async def _ended(self, handle: Handle) -> _End | None:
        """The end of a job; None while it lives."""
        # In this order: a job that ends in between has its outcome, and is not taken for an unknown one.
        standing, outcome = await self._both(reads.standing(handle), reads.outcome(handle))
        if standing is None:
            raise _unknown()
        return (outcome, standing) if outcome else None

    async def _taken(self, handle: Handle, end: _End) -> Outcome:
        """The outcome of a job that ended, which is forgotten where it asked for that."""
        outcome, standing = end
        if standing.once:
            # Now that it is here. Where that fails, or this user may not, its retention ends it.
            with suppress(FleetError):
                await run(self._redis, functions.forget(handle, outcome.attempt))
        return outcome

    async def follow(self, handle: Handle, after: str, *, new: bool = False) -> AsyncGenerator[Event, None]:
        """A job's events from its beginning, or after the frame `after`, to its end; `new` as in `Hub.subscribe`.

        Raises:
            UnknownJob: there is no such job, or no more.
            InvalidRequest: `after` is no frame id.
        """
        place = _place(after)
        with self._hub.subscribe(keys.tokens(handle), new=new) as subscription:
            while True:
                # Without a name of its own: nothing of it is held while the next is waited for.
                for step in await self._next(handle, place, subscription):
                    if not isinstance(step, Sealed):
                        yield step
                        continue
                    for event in (events := await self._ending(handle, step)):
                        yield event
                    if events:
                        return
                    place.unseal(step)

    async def _next(self, handle: Handle, place: Place, subscription: Subscription) -> Iterable[Step]:
        heard = await subscription.hear()
        if heard is None:
            return await self._look(handle, place, subscription)
        return _live(place, subscription, heard)

    async def _look(self, handle: Handle, place: Place, subscription: Subscription) -> list[Step]:
        """Read the log from `place` on, a page of it; where an ended job has none, what its record says."""
        # In this order: a job that had ended before its log was read has its seal in it.
        log = reads.log_after(handle, place.position, FRAMES_A_READ)
        standing, page = await self._both(reads.standing(handle), log)
        if standing is None:
            raise _unknown()
        steps = place.rewind(standing, page[0] if page else None)
        if steps:
            page = await self._page(handle, place)
        for frame in page:
            steps += place.logged(frame)
        if len(page) == FRAMES_A_READ:
            # The next page once this one is read: a long log is never held as a whole.
            subscription.doubt()
            return steps
        sealed = bool(steps) and isinstance(steps[-1], Sealed)
        return steps if sealed or not standing.state.terminal else steps + place.without_log(standing)

    async def _ending(self, handle: Handle, sealed: Sealed) -> list[Event]:
        """The last events; none where the store has lost the end that was heard, and the job lives again.

        Where it has ended anew meanwhile, what it said then counts.
        """
        end = await self._ended(handle)
        if end is None:
            return []
        outcome, (_, standing) = await self._taken(handle, end), end
        anew = standing.attempt != parse_position(sealed.id)[0]
        end_id = Frame(standing.attempt, standing.frames + 1).id if anew else sealed.id
        result = whole(end_id, outcome) if sealed.alone or anew else None
        begin = [Restart(BEHIND)] if anew and result and not sealed.alone else []
        return [*begin, *([result] if result else []), End(end_id, outcome)]

    async def _page(self, handle: Handle, place: Place) -> list[Frame]:
        call = reads.log_after(handle, place.position, FRAMES_A_READ)
        return await patiently(lambda: run(self._redis, call), self._patience_s)

    async def _both(self, first: Call[A], second: Call[B]) -> tuple[A, B]:
        """Two reads in one round trip, in this order."""

        async def attempt() -> tuple[A, B]:
            calls: list[Call[A] | Call[B]] = [first, second]
            left, right = await run_all(self._redis, cast("list[Call[A | B]]", calls))
            return cast("A", value_of(left)), cast("B", value_of(right))

        return await patiently(attempt, self._patience_s)


def _place(after: str) -> Place:
    try:
        return Place.after(after)
    except (ValueError, TypeError):
        raise InvalidRequest("after: it reads ATTEMPT-NUMBER, as the events' ids do") from None


def _live(place: Place, subscription: Subscription, heard: Iterable[bytes]) -> Iterator[Step]:
    """What was heard, one by one, so that a slow reader holds no more than that as it came."""
    for message in heard:
        frame = _decoded(message)
        steps = place.live(frame) if frame else None
        if steps is None:
            # What else was heard stands in the log too, which is read next.
            subscription.doubt()
            return
        yield from steps


def _decoded(message: bytes) -> Frame | None:
    """A frame from the channel; None for what no worker of ours has sent."""
    try:
        return frames.decode_message(message)
    except (ValueError, KeyError, TypeError, FleetError):
        return None


def _unknown() -> UnknownJob:
    return UnknownJob("there is no such job", "It was never submitted, was forgotten, or its retention has passed.")
