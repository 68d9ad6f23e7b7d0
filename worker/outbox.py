"""The writer: what all attempts of one life have to say goes out together, one pipeline at a time."""

import asyncio
from collections.abc import Callable, Sequence

from redis.asyncio import Redis

from protocol import failpoints
from protocol.call import run_all
from protocol.errors import FleetError
from protocol.log import get_logger
from protocol.wire import JsonObject
from worker.backoff import Backoff
from worker.outgoing import Outgoing
from worker.verdict import Drop, Verdict

ATTEMPTS_A_PIPELINE = 256
EXPRESS = 4
"""So many first tokens at a time go out on their own; more of them cost less in a pipeline."""
REFUSED_RETRY_S = 1.0
"""What Redis refuses, as by an ACL, is tried again so often: an operator may mend it."""
_log = get_logger("worker")


class Outbox:
    """Sends frames and ends, and repeats them until Redis has answered; every call may be repeated freely.

    Args:
        redis: where to.
        frame_s: how long tokens after a job's first are gathered.
        on_over: told of each attempt that needs nothing more, also when Redis says that it is not ours.
    """

    def __init__(self, redis: Redis, frame_s: float, on_over: Callable[[Outgoing], None]) -> None:
        self._redis, self._frame_s, self._on_over = redis, frame_s, on_over
        self._due: dict[Outgoing, None] = {}
        self._gathering: dict[Outgoing, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()
        self._backoff = Backoff()
        self._express = 0

    def say(self, out: Outgoing, chunk: JsonObject, ids: Sequence[int] = (), *, tokens: int | None = None) -> None:
        """Send a chunk and its tokens together with those that follow soon; `tokens`: their number, where known."""
        out.say(chunk, ids, tokens)
        if out not in self._due:
            self._gathering[out] = None
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self._frame_s, self._gathered)

    async def hurry(self, out: Outgoing) -> None:
        """Send what an attempt has said now, past what is under way.

        What `run` sends waits for that, and for all else that engines have told in this turn of the loop.
        """
        if out.over or self._express >= EXPRESS:
            self._send_soon(out)
            return
        self._gathering.pop(out, None)
        self._express += 1
        try:
            await self._send([out])
        except FleetError:
            # `run` is patient.
            self._send_soon(out)
        finally:
            self._express -= 1

    def end(self, out: Outgoing, verdict: Verdict) -> None:
        """Send how an attempt ends; one that is dropped says nothing more."""
        if isinstance(verdict, Drop):
            out.over = True
        elif not out.broken:
            out.end(verdict)
        if out.over:
            self._on_over(out)
        else:
            self._send_soon(out)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._wake.wait()
            batch = [out for _, out in zip(range(ATTEMPTS_A_PIPELINE), self._due, strict=False)]
            for out in batch:
                del self._due[out]
                self._gathering.pop(out, None)
            try:
                await self._send([out for out in batch if not out.over])
            except FleetError as error:
                _log.debug("write_failed", code=error.code, attempts=len(batch))
                # Nobody knows what was done. In order: these have waited for the longest.
                self._due = dict.fromkeys(batch) | self._due
                await asyncio.sleep(self._backoff.pause_s())
            else:
                self._backoff.reset()
            if not self._due:
                self._wake.clear()

    def _send_soon(self, out: Outgoing) -> None:
        self._due[out] = None
        self._wake.set()

    def _gathered(self) -> None:
        self._timer = None
        self._due |= self._gathering
        self._gathering.clear()
        self._wake.set()

    async def _send(self, batch: Sequence[Outgoing]) -> None:
        pairs = [(out, call) for out in batch for call in out.calls()]
        if not pairs:
            return
        ending = [out.handle.own_id for out in batch if out.ends]
        _reach("worker.before_finish", ending)
        replies = await run_all(self._redis, [call for _, call in pairs])
        _reach("worker.after_finish", ending)
        refused: dict[Outgoing, FleetError] = {}
        for (out, _), reply in zip(pairs, replies, strict=True):
            if isinstance(reply, FleetError):
                refused[out] = reply
            elif not out.over:
                out.heard(reply)
                if reply == "dead":
                    _log.warning("job_set_aside", job=str(out.handle), attempt=out.attempt, code="struck_out")
        for out in batch:
            if out.over or out.broken:
                self._on_over(out)
            if out in refused:
                self._later(out, refused[out])
            elif out.unanswered:
                self._send_soon(out)

    def _later(self, out: Outgoing, error: FleetError) -> None:
        _log.error("write_refused", job=str(out.handle), attempt=out.attempt, code=error.code, error=str(error))
        asyncio.get_running_loop().call_later(REFUSED_RETRY_S, self._send_soon, out)


def _reach(point: str, own_ids: Sequence[str]) -> None:
    for own_id in own_ids:
        failpoints.reach(point, own_id)
