"""One pub/sub connection for all followers of a process, and what each of them hears."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from protocol.call import heed_cancel, spread_s
from protocol.primary import heard

SILENCE_S = 5.0
"""After so long without a word, look whether the connection lives."""
NEW_S = 0.25
"""Who follows a job from its submission on reads the log only after so long a silence."""
HELD_MESSAGES = 100
HELD_BYTES = 32 * 1024
"""A slower reader gets no more than this: it reads the log instead."""
FIRST_PAUSE_S = 0.02
SPREAD_S = 0.1
"""Clients that one restart cut off come back over so long, not all at once."""
LONGEST_PAUSE_S = 1.0


class Subscription:
    """What one follower hears on its channel."""

    def __init__(self, *, new: bool = False) -> None:
        """Nothing is heard yet; see `Hub.subscribe`."""
        self._new = new
        self._silence_s = NEW_S if new else SILENCE_S
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._doubtful = False
        self._news = asyncio.Event()

    def tell(self, message: bytes) -> None:
        """A message came."""
        if len(self._messages) >= HELD_MESSAGES or (self._messages and self._bytes + len(message) > HELD_BYTES):
            self.doubt()
        else:
            self._messages.append(message)
            self._bytes += len(message)
            self._news.set()

    def doubt(self) -> None:
        """Messages may have been missed until now: the log has all of them."""
        self._new = False
        self._messages.clear()
        self._bytes = 0
        self._doubtful = True
        self._news.set()

    def begin(self) -> None:
        """The subscription holds from now on."""
        if self._new:
            # Next to nothing can have been said before, and any word shows what was missed. A silence does too.
            self._new = False
        else:
            self.doubt()

    async def hear(self) -> list[bytes] | None:
        """The next messages; None: read the log, because the subscription just began (anew), or after a silence."""
        if not self._news.is_set():
            silence = asyncio.get_running_loop().call_later(self._silence_s, self.doubt)
            try:
                await self._news.wait()
            finally:
                silence.cancel()
        self._silence_s = SILENCE_S
        if self._doubtful:
            self._doubtful = False
            messages = None
        else:
            messages = list(self._messages)
            self._messages.clear()
            self._bytes = 0
        if not self._messages:
            self._news.clear()
        return messages


class Hub:
    """Keeps Redis's subscriptions as the followers want them, over broken connections too.

    Each confirmation of a subscription, the first as well as one after a reconnect (redis-py makes those silently),
    tells the channel's followers to read the log. That is what makes lost messages harmless.
    """

    def __init__(self, redis: Redis) -> None:
        """Use `redis`'s pool; nothing connects before the first follower."""
        self._redis = redis
        self._followers: dict[str, set[Subscription]] = {}
        self._confirmed: set[str] = set()
        self._changed = asyncio.Event()
        self._ping_due = self._closing = False
        self._spoke_s = 0.0
        """When a word came last, or was asked for, by the loop's clock."""
        self._asked = False
        """Whether one was asked for since the last one."""
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def subscribe(self, channel: str, *, new: bool = False) -> Iterator[Subscription]:
        """Hear a channel for the length of a block; not async, so that a loop that ends can close its followers.

        With `new` its job has just been submitted: what is heard is enough, while something is.
        """
        subscription = Subscription(new=new)
        self._followers.setdefault(channel, set()).add(subscription)
        if channel in self._confirmed:
            subscription.doubt()
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._serve())
        try:
            yield subscription
        finally:
            self._leave(channel, subscription)

    async def close(self) -> None:
        """Drop the connection."""
        self._closing = True
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _leave(self, channel: str, subscription: Subscription) -> None:
        followers = self._followers[channel]
        followers.discard(subscription)
        if not followers:
            del self._followers[channel]
            self._changed.set()

    async def _serve(self) -> None:
        """Hold connections, one after another."""
        pause = FIRST_PAUSE_S
        # A cancellation that comes together with a broken connection is lost in the task group's errors.
        while not self._closing:
            await self._until_wanted()
            pubsub = self._redis.pubsub()
            try:
                await self._session(pubsub)
            except* (RedisError, OSError):
                pause = FIRST_PAUSE_S if self._confirmed else min(2 * pause, LONGEST_PAUSE_S)
            finally:
                self._confirmed.clear()
                with suppress(RedisError, OSError):
                    await pubsub.aclose()  # type: ignore[no-untyped-call]  # redis-py 5 is untyped here
            await asyncio.sleep(spread_s(pause, SPREAD_S))

    async def _until_wanted(self) -> None:
        while not self._followers:
            self._changed.clear()
            await self._changed.wait()

    async def _session(self, pubsub: PubSub) -> None:
        """Serve over one connection until it breaks."""
        sent: set[str] = set()
        async with asyncio.TaskGroup() as group:
            # The first subscription connects, and a reader needs a connection.
            await self._adjust(pubsub, sent)
            group.create_task(self._write(pubsub, sent))
            group.create_task(self._read(pubsub))
            group.create_task(self._watch())

    async def _write(self, pubsub: PubSub, sent: set[str]) -> None:
        while True:
            await self._changed.wait()
            await self._adjust(pubsub, sent)
            if self._ping_due:
                self._ping_due = False
                await heed_cancel(pubsub.ping())

    async def _adjust(self, pubsub: PubSub, sent: set[str]) -> None:
        """Subscribe to what is wanted and not `sent` yet, leave what is not wanted any more."""
        self._changed.clear()
        wanted = self._followers.keys()
        new, old = wanted - sent, sent - wanted
        sent |= new
        sent -= old
        self._confirmed -= old
        if old:
            await heed_cancel(pubsub.unsubscribe(*old))
        if new:
            await heed_cancel(pubsub.subscribe(*new))

    async def _read(self, pubsub: PubSub) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if messages := await heed_cancel(heard(pubsub)):
                self._spoke_s, self._asked = loop.time(), False
                for message in messages:
                    self._pass_on(message)

    async def _watch(self) -> None:
        """Ask a silent connection for a word, and give up one that has none to say."""
        loop = asyncio.get_running_loop()
        self._spoke_s, self._asked = loop.time(), False
        while True:
            await asyncio.sleep(self._spoke_s + SILENCE_S - loop.time())
            if loop.time() < self._spoke_s + SILENCE_S:
                continue
            if self._asked:
                raise ConnectionError("no answer to a ping")
            self._spoke_s, self._asked = loop.time(), True
            self._ping_due = True
            self._changed.set()

    def _pass_on(self, message: dict[str, Any]) -> None:
        if message["type"] not in ("subscribe", "message"):
            return
        channel = message["channel"].decode()
        followers = self._followers.get(channel, ())
        if message["type"] == "message":
            for follower in followers:
                follower.tell(message["data"])
        elif followers:
            self._confirmed.add(channel)
            for follower in followers:
                follower.begin()
