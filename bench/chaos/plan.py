"""What a run consists of: sizes, times, and each job by its number."""

import random
from dataclasses import dataclass
from pathlib import Path

from producer.requests import JobRequest
from protocol.handle import Handle, Shard
from protocol.settings import Settings

MODEL = "chaos"
POISON = "this one kills its worker"
SHARD = Shard(MODEL)
TENANTS = 5
LEASE_S = 3.0
SLACK_S = 2.0
"""Recovery may take so much longer than a lease."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run.

    Attributes:
        folder: where the server, the journals and the logs are.
        redis_url: where the server listens.
        jobs: how many, poison included.
        poison: how many of them kill their worker.
        rate: jobs submitted a second, by all producers together.
        seed: of the kills and of the jobs.
    """

    folder: Path
    redis_url: str
    jobs: int = 20_000
    poison: int = 10
    rate: float = 130.0
    seed: int = 1
    producers: int = 5
    workers: int = 10
    schedulers: int = 3
    followers: int = 2
    slots: int = 8

    @property
    def settings(self) -> Settings:
        """Of every role. The lead is shorter than a default one: a takeover must fit into the slack."""
        return Settings(
            redis_url=self.redis_url,
            redis_patience_s=60.0,
            lease_s=LEASE_S,
            lead_s=1.0,
            tick_s=0.5,
            keep_s=60.0,
            window_s=0.05,
            log_level="warning",
            log_format="json",
        )

    def own_jobs(self, producer: int) -> range:
        """The numbers of one producer's jobs."""
        return range(producer, self.jobs, self.producers)

    def poisonous(self) -> frozenset[int]:
        """The numbers of the planted jobs, spread over the run's middle."""
        middle = range(self.jobs // 10, self.jobs * 8 // 10)
        return frozenset(random.Random(self.seed).sample(middle, self.poison))

    def journal(self, role: str) -> Path:
        """What a role has seen, over all its lives."""
        return self.folder / f"{role}.journal"


def own_id(number: int) -> str:
    """A job's id: submitted again, it is the same job."""
    return f"job-{number}"


def number_of(own: str) -> int:
    """The number in an id."""
    return int(own.removeprefix("job-"))


def tenant_of(number: int) -> str:
    """Whose job it is."""
    return f"tenant-{number % TENANTS}"


def handle_of(number: int) -> Handle:
    """Where a job is."""
    return Handle(SHARD, tenant_of(number), own_id(number))


def request_of(number: int, poison: bool) -> JobRequest:  # noqa: FBT001 - the plan's own flag
    """A job by its number: always the same one."""
    chance = random.Random(number)
    priority = chance.choices(("high", "medium", "low"), (7, 2, 1))[0]
    return JobRequest(
        model=MODEL,
        prompt=f"{POISON if poison else 'say something'} {number}",
        stream=True,
        tenant=tenant_of(number),
        id=own_id(number),
        priority=priority,
        params={"max_tokens": chance.randint(6, 18)},
    )
