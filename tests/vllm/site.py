"""A fleet on real parts: a server, a scheduler, and the workers that a test asks for."""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bench.vllm_env.models import PYTHON
from producer.fleet import Fleet
from producer.workers import PlacedWorker, read_roster, state_of
from protocol.settings import Settings
from protocol.states import WorkerState
from tests.support.servers import Server, valkey_binary
from tests.support.waiting import eventually
from tests.vllm.roles import CPU_BUILD, Role, running, vllm_arguments

REQUIRE_VLLM = "TOKENFLEET_REQUIRE_VLLM"
START_S = 150.0
"""vLLM is up after 20 to 40 s, while nobody else needs the cores."""


@dataclass(frozen=True)
class Site:
    """Where the fleet is."""

    server: Server
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"TOKENFLEET_REDIS_URL": self.server.url}

    def connect(self, tenant: str = "default") -> Fleet:
        """A client; use it as `async with`."""
        return Fleet(tenant=tenant, settings=Settings(redis_url=self.server.url))

    @contextmanager
    def role(self, name: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[Role]:
        """A process of ours for the length of a block."""
        with running(self.folder / f"{name}.log", arguments, self.environment | dict(environment or {})) as role:
            yield role

    @contextmanager
    def worker(self, plan: "Plan") -> Iterator["Staff"]:
        """A worker, once its engine is up."""
        arguments = vllm_arguments(plan.model, plan.folder, plan.label, plan.options, plan.flags)
        environment = CPU_BUILD | {"VLLM_CPU_OMP_THREADS_BIND": str(plan.core)} | dict(plan.environment)
        with self.role(plan.label, arguments, environment) as role:
            staff = Staff(self, plan.label, role)
            asyncio.run(staff.loaded(plan.state))
            yield staff


@contextmanager
def a_site(folder: Path) -> Iterator[Site]:
    """A server and a scheduler. Without vLLM the test is skipped, or fails where TOKENFLEET_REQUIRE_VLLM=1 is set."""
    if not PYTHON.is_file():
        why = f"there is no interpreter with vLLM at {PYTHON}: make vllm-env, or set TOKENFLEET_VLLM_PYTHON"
        if os.environ.get(REQUIRE_VLLM) == "1":
            pytest.fail(f"{REQUIRE_VLLM} is set, but {why}")
        pytest.skip(why)
    server = Server(valkey_binary(), folder)
    server.start()
    try:
        server.load_library()
        place = Site(server, folder)
        with place.role("scheduler", ["scheduler"]):
            yield place
    finally:
        server.stop()


@dataclass(frozen=True)
class Plan:
    """A worker to start: its engine computes on one core alone."""

    label: str
    model: str
    folder: Path
    core: int
    options: Sequence[str] = ()
    flags: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    state: WorkerState = "active"
    """In which it is ready."""


@dataclass(frozen=True)
class Staff:
    """A worker that runs."""

    site: Site
    label: str
    role: Role

    async def loaded(self, state: WorkerState) -> None:
        async with self.site.connect() as fleet:
            await self.reaches(fleet, state, START_S)

    async def reaches(self, fleet: Fleet, state: WorkerState, timeout_s: float = 10.0) -> PlacedWorker:
        """The worker, once it is in this state."""

        async def find() -> PlacedWorker | None:
            found = await self.find(fleet)
            return found if found and found.record.state == state else None

        found = await eventually(find, timeout_s)
        assert found
        return found

    async def find(self, fleet: Fleet) -> PlacedWorker | None:
        """Its record, while it holds a lease."""
        code = self.role.process.poll()
        if code is not None:
            # Not an assertion: nothing is gained by looking again.
            raise RuntimeError(f"the worker {self.label} ended with code {code}:\n{self.role.words()[-3000:]}")
        roster = await read_roster(fleet.redis)
        mine = [worker for worker in roster.workers if worker.record.label == self.label]
        return next((worker for worker in mine if state_of(worker.record, roster.now_ms) != "lost"), None)
