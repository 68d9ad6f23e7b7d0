"""The demo itself: an embedded fleet, a batch, and in the middle of it a chat."""

import asyncio
import tempfile
from collections import deque
from contextlib import suppress
from importlib.resources import as_file, files
from pathlib import Path

from producer.batch import BatchSummary, FinishedRow, Progress, run_batch
from producer.fleet import Fleet
from producer.status import FleetStatus
from protocol.errors import FleetError
from protocol.states import Priority
from tokenfleet.demo.chat import Chat, hold_chat
from tokenfleet.demo.report import DemoReport, JobTimes
from tokenfleet.demo.show import View
from tokenfleet.up.commands import FleetOptions
from tokenfleet.up.fleet import EmbeddedFleet

READY_S = {"llama": 120.0, "sim": 120.0, "vllm": 1800.0}
"""By engine: the first start unpacks the model; vLLM may have to fetch it."""
CHAT_AFTER = 0.2
"""The chat comes once this share of the batch is done."""
LOOK_S = 0.25
LAST_LINES = 20


class Log:
    """The last lines of the children, for when something goes wrong."""

    def __init__(self) -> None:
        """Nothing was said yet."""
        self.lines: deque[str] = deque(maxlen=LAST_LINES)

    def add(self, name: str, line: str) -> None:
        """A child wrote a line, or died."""
        self.lines.append(f"{name}: {line}")


async def run_demo(options: FleetOptions, view: View, log: Log, expected: str) -> DemoReport:
    """Run it to its end; `expected` is what the chat's answer must hold.

    Raises:
        SetupError: something is not installed.
        WaitTimeout: the fleet did not come up; `log` has its last lines.
    """
    size = f"{options.workers} workers" if options.workers > 1 else "1 worker"
    first = "the first time unpacks the model" if options.engine == "llama" else "the model is loaded"
    view.note(f"starting Valkey, a scheduler and {size} with {options.model}; {first}")
    async with EmbeddedFleet(options, on_line=log.add, on_death=log.add) as embedded:
        await embedded.ready(READY_S[options.engine])
        view.note(f"the fleet is up at {embedded.redis_url}")
        async with Fleet(embedded.redis_url) as fleet:
            report = await _Show(fleet, embedded, view).play(expected)
    view.note("the fleet is stopped; nothing is left running")
    return report


class _Show:
    """The batch, the chat and the watching eye, at the same time."""

    def __init__(self, fleet: Fleet, embedded: EmbeddedFleet, view: View) -> None:
        self._fleet, self._embedded, self._view = fleet, embedded, view
        self._midway = asyncio.Event()
        self._rows: list[FinishedRow] = []

    async def play(self, expected: str) -> DemoReport:
        """All of it."""
        watching = asyncio.create_task(self._watch())
        chatting = asyncio.create_task(self._chat())
        try:
            summary = await self._batch()
            # A batch that failed early never came midway.
            self._midway.set()
            chat = await chatting
            self._look_at(await self._fleet.status())
            return self._report(summary, chat, expected)
        finally:
            for task in (watching, chatting):
                task.cancel()
            await asyncio.gather(watching, chatting, return_exceptions=True)

    async def _batch(self) -> BatchSummary:
        with as_file(files("tokenfleet.demo") / "prompts.jsonl") as source, tempfile.TemporaryDirectory() as scratch:
            return await run_batch(
                self._fleet,
                source,
                Path(scratch) / "answers.jsonl",
                model=self._embedded.options.model,
                on_progress=self._on_progress,
                on_row=self._rows.append,
            )

    def _on_progress(self, progress: Progress) -> None:
        scene = self._view.scene
        scene.rows_in, scene.rows_out = progress.rows_total or progress.rows_in, progress.rows_out
        scene.tokens_per_s = progress.tokens_out / progress.seconds if progress.seconds else 0.0
        self._view.refresh()
        if progress.rows_out >= CHAT_AFTER * scene.rows_in:
            self._midway.set()

    async def _chat(self) -> Chat:
        await self._midway.wait()
        self._view.note("a chat comes in, with priority high")
        chat = await hold_chat(self._fleet, self._embedded.options.model, self._embedded.shard, self._view)
        first_ms = chat.info.ttft_ms or 0
        self._view.note(f"the chat overtook {chat.overtook} queued rows; its first token came after {first_ms} ms")
        return chat

    async def _watch(self) -> None:
        """Keep the scene's queue and workers up to date."""
        while True:
            with suppress(FleetError):
                self._look_at(await self._fleet.status())
            self._view.refresh()
            await asyncio.sleep(LOOK_S)

    def _look_at(self, status: FleetStatus) -> None:
        scene = self._view.scene
        for shard in status.shards:
            scene.workers = shard.workers
            scene.queued = sum(lane.depth for lane in shard.lanes if lane.priority is Priority.MEDIUM)

    def _report(self, summary: BatchSummary, chat: Chat, expected: str) -> DemoReport:
        labels = {worker.id: worker.label for worker in self._view.scene.workers}
        ran_by = labels.get(chat.info.record.worker, chat.info.record.worker)
        jobs = [JobTimes(Priority.MEDIUM, row.queue_ms, row.ttft_ms, row.worker) for row in self._rows if row.worker]
        jobs.append(JobTimes(chat.info.record.priority, chat.info.queue_ms, chat.info.ttft_ms, ran_by))
        return DemoReport(
            rows_in=summary.rows_in,
            rows_out=summary.rows_out,
            rows_failed=summary.rows_failed,
            tokens_out=summary.tokens_out + (chat.outcome.usage.get("completion_tokens") or 0),
            seconds=summary.seconds,
            jobs=jobs,
            answer=chat.answer,
            overtook=chat.overtook,
            expected=expected,
        )
