"""Obeys an operator's commands, one after the other."""

import asyncio
from collections import deque
from collections.abc import Callable

from protocol.log import get_logger
from protocol.messages import InboxEntry
from worker.duty import Duty
from worker.engine.base import EngineError
from worker.keeper import EngineKeeper

REMEMBERED = 64
"""An entry may be read again before its acknowledgement has reached Redis."""
_log = get_logger("worker")


class Commands:
    """Takes commands from the inbox and carries them out.

    Args:
        keeper: of the engine that sleeps and wakes.
        duty: what the worker is meant to be.
        drain: set when it is to finish and go.
        idle: set while no job runs.
        on_answer: called with the inbox entry once its command was obeyed or refused.
        on_change: called when the worker's state may have changed.
    """

    def __init__(
        self,
        keeper: EngineKeeper,
        duty: Duty,
        drain: asyncio.Event,
        idle: asyncio.Event,
        on_answer: Callable[[str], None],
        on_change: Callable[[], None],
    ) -> None:
        self._keeper, self._duty, self._drain, self._idle = keeper, duty, drain, idle
        self._on_answer, self._on_change = on_answer, on_change
        self._waiting: asyncio.Queue[InboxEntry] = asyncio.Queue()
        self._seen: deque[str] = deque(maxlen=REMEMBERED)

    def take(self, entry: InboxEntry) -> None:
        """Obey soon; an entry that was taken before is skipped."""
        if entry.entry_id not in self._seen:
            self._seen.append(entry.entry_id)
            self._waiting.put_nowait(entry)

    async def run(self) -> None:
        """Obey until cancelled."""
        while True:
            entry = await self._waiting.get()
            refusal = await self._obey(entry.command)
            self._duty.answered, self._duty.refusal = entry.entry_id, refusal
            word = entry.command[:32]
            if refusal:
                _log.warning("command_refused", command=word, why=refusal)
            else:
                _log.info("command_obeyed", command=word)
            self._on_answer(entry.entry_id)
            self._on_change()

    async def _obey(self, word: str) -> str:
        """Why it can't be done; empty once it is."""
        try:
            match word:
                case "drain":
                    self._drain.set()
                case "promote":
                    await self._promote()
                case "rest":
                    self._duty.standby = True
                case "sleep":
                    return await self._sleep()
                case "wake":
                    return await self._wake()
                case _:
                    return "this worker does not know the command"
        except EngineError as error:
            return str(error)
        return ""

    async def _promote(self) -> None:
        if self._keeper.phase == "asleep":
            await self._keeper.wake()
        self._duty.standby = False

    async def _sleep(self) -> str:
        if self._keeper.phase != "up":
            return "its engine is not up"
        before, self._duty.standby = self._duty.standby, True
        self._on_change()
        try:
            # Nothing new comes any more: what runs is finished first.
            await self._idle.wait()
            await self._keeper.sleep()
        except EngineError:
            self._duty.standby = before
            raise
        return ""

    async def _wake(self) -> str:
        if self._keeper.phase != "asleep":
            return "it is not asleep"
        await self._keeper.wake()
        return ""
