"""`EmbeddedFleet`: a server, a scheduler and workers as children, for the length of a block."""

import asyncio
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from redis.asyncio import Redis

from protocol import reads, store
from protocol.call import run, run_all
from protocol.errors import FleetError, SetupError, StoreUnavailable, WaitTimeout
from protocol.handle import Shard
from protocol.messages import WorkerRecord
from tokenfleet.up import commands
from tokenfleet.up.child import Child, Command, LineSink
from tokenfleet.up.commands import FleetOptions
from tokenfleet.up.data import DataDir, open_data
from tokenfleet.up.installed import check_engine, server_binary
from tokenfleet.up.ports import claim_port
from worker.pool_name import pool_of

POLL_S = 0.1


def _ignore(name: str, line: str) -> None:
    del name, line


class EmbeddedFleet:
    """A whole fleet on loopback. Children that die are started again; none outlives the block or this process.

    Attributes:
        redis_url: where its server listens.
        data: its data directory.
    """

    redis_url: str
    data: DataDir

    def __init__(
        self, options: FleetOptions | None = None, *, on_line: LineSink = _ignore, on_death: LineSink = _ignore
    ) -> None:
        """Start nothing yet; the sinks get a child's name and a line of its log, or how it died."""
        self.options = options or FleetOptions()
        self._sinks = on_line, on_death
        self._children: dict[str, Child] = {}
        self._running: list[asyncio.Task[None]] = []
        self._resources = ExitStack()

    @property
    def shard(self) -> Shard:
        """Where its jobs are."""
        return Shard(pool_of(self.options.model))

    async def __aenter__(self) -> Self:
        """Start all children; they need a moment: see `ready`.

        Raises:
            SetupError: something is not installed, the port is in use, or another fleet uses the data directory.
        """
        binary = server_binary()
        check_engine(self.options.engine)
        self.data = await asyncio.to_thread(self._resources.enter_context, open_data(self.options.data))
        try:
            # Only now: the server of a fleet that was killed has given its port back.
            port = claim_port(self.options.port, self.options.preferred_port)
        except SetupError:
            self._resources.close()
            raise
        self.redis_url = commands.url_of(port)
        self._start(commands.server_command(binary, port, self.data))
        self._start(commands.scheduler_command(self.redis_url, self.options))
        for number in range(1, self.options.workers + 1):
            self._start(commands.worker_command(self.redis_url, self.options, number))
        return self

    def _start(self, command: Command) -> None:
        child = self._children[command.name] = Child(command, *self._sinks)
        self._running.append(asyncio.create_task(child.run(), name=command.name))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the roles, then the server; nothing is left running."""
        del kind, error, trace
        try:
            await self._stop()
        finally:
            # Also when the stop itself is cancelled: better a hard end than a process left behind.
            self.end()
            await asyncio.gather(*self._running, return_exceptions=True)
            self._resources.close()

    async def _stop(self) -> None:
        roles = [child for name, child in self._children.items() if name != "valkey"]
        await asyncio.gather(*(child.stop() for child in roles))
        if server := self._children.get("valkey"):
            await server.stop()

    def end(self) -> None:
        """End all children for good, now; workers hand nothing back."""
        for child in self._children.values():
            child.end()

    def pids(self) -> dict[str, int]:
        """Name → process id of the children that run: `valkey` (its guard), `scheduler`, `worker-1`, …."""
        return {name: child.pid for name, child in self._children.items() if child.pid}

    def process(self, name: str) -> Child:
        """A child by its name, to look at or to kill."""
        return self._children[name]

    async def ready(self, timeout: float = 60.0) -> None:
        """Wait until all workers have joined and take jobs.

        Raises:
            WaitTimeout: they did not within `timeout` seconds.
        """
        redis = store.connect(self.redis_url)
        try:
            async with asyncio.timeout(timeout):
                await store.wait_until_up(redis, timeout, lambda: None)
                since = await run(redis, reads.store_time_ms())
                while len(await self._seen(redis, since)) < self.options.workers:  # noqa: ASYNC110 - they tell Redis
                    await asyncio.sleep(POLL_S)
        except (TimeoutError, StoreUnavailable):
            down = self._down()
            msg = f"the fleet was not ready within {timeout:g} s"
            hint = f"Not running at the moment: {', '.join(down)}." if down else "See its log."
            raise WaitTimeout(msg, hint) from None
        finally:
            await redis.aclose()

    def _down(self) -> list[str]:
        return sorted(set(self._children) - set(self.pids()))

    async def _seen(self, redis: Redis, since_ms: int) -> set[str]:
        """As `_joined`; nobody while engines that load leave Redis no time to answer."""
        try:
            return await self._joined(redis, since_ms)
        except StoreUnavailable:
            if self._down():
                raise
            return set()

    async def _joined(self, redis: Redis, since_ms: int) -> set[str]:
        """Labels of the workers that are ready and reported since then; earlier lives may still hold a lease."""
        leases = await run(redis, reads.leases(self.shard))
        records: list[WorkerRecord | FleetError | None] = await run_all(
            redis, [reads.worker_record(self.shard, worker, lease) for worker, lease in leases.items()]
        )
        return {
            record.label
            for record in records
            if isinstance(record, WorkerRecord) and record.state == "active" and record.report_ms >= since_ms
        }
