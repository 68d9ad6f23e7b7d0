"""Whether anybody still follows the jobs that asked to be cancelled when nobody does."""

from collections.abc import Sequence

from redis.asyncio import Redis

from protocol import reads
from protocol.call import run
from protocol.clock import Clock
from worker.attempt import Attempt
from worker.verdict import unfollowed


class Followers:
    """Counts the subscribers of such jobs' token channels.

    On a cluster a server counts only its own: there the workers' connection must lead to the shard's server, which
    is also where followers subscribe.
    """

    def __init__(self, redis: Redis, clock: Clock) -> None:
        self._redis, self._clock = redis, clock
        self._alone_since_s: dict[Attempt, float] = {}

    async def look(self, attempts: Sequence[Attempt]) -> None:
        """Stop those that nobody has followed for as long as they allow.

        Raises:
            FleetError: Redis does not answer; nobody is stopped for that.
        """
        asking = [attempt for attempt in attempts if self._asks(attempt)]
        self._alone_since_s = {attempt: self._alone_since_s[attempt] for attempt in asking if self._knows(attempt)}
        if not asking:
            return
        counts = await run(self._redis, reads.followers([attempt.out.handle for attempt in asking]))
        now_s = self._clock.monotonic()
        for attempt, count in zip(asking, counts, strict=True):
            if count:
                self._alone_since_s.pop(attempt, None)
                continue
            limit_s = attempt.started.spec.unfollowed_s or 0.0
            if now_s - self._alone_since_s.setdefault(attempt, now_s) >= limit_s:
                attempt.stop(unfollowed(limit_s))

    def _asks(self, attempt: Attempt) -> bool:
        spec = attempt.started.spec
        if spec.unfollowed_s is None or spec.followed_s is None:
            return spec.unfollowed_s is not None
        age_s = (attempt.waited_s or 0.0) + self._clock.monotonic() - attempt.begun_s
        return age_s < spec.followed_s

    def _knows(self, attempt: Attempt) -> bool:
        return attempt in self._alone_since_s
