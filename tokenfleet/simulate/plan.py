"""A scenario in the words of a command line: so many workers, these of them slow, those killed, some clients gone."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from protocol.cost_model import PROFILES, Profile
from protocol.errors import SetupError
from protocol.states import Priority
from scheduler.policy.order import Targets
from scheduler.policy.policy import Policy
from tokenfleet.simulate.engine import WorkerSpec
from tokenfleet.simulate.job import Request
from tokenfleet.simulate.scenario import Scenario, too_large
from tokenfleet.simulate.traces import Trace

PATIENCE_MS = 2_000.0
"""A client that cancels does so after so long on average, whatever it has got."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What stands on the command line of `simulate`, beside the policies.

    Attributes:
        scale: how much faster than recorded the requests arrive.
        workers: `w1`, `w2`, …: there from the start.
        slow: (how many, at which speed): the last workers, at a speed below 1 for slower ones.
        kills: worker → when it dies, in s.
        joins: further workers → when they come, in s.
        cancel_share: share of the requests whose client gives up.
        offline: offline requests that wait from the start; as long as those of the trace.
    """

    trace: Trace
    scale: float = 1.0
    workers: int = 4
    profile: Profile = PROFILES["h100-8b"]
    slow: Sequence[tuple[int, float]] = ()
    kills: dict[str, float] = field(default_factory=dict)
    joins: dict[str, float] = field(default_factory=dict)
    cancel_share: float = 0.0
    offline: int = 0
    report_ms: float = 50.0
    seed: int = 0

    def scenario(self, policy: Policy, targets: Targets) -> Scenario:
        """What a world runs.

        Raises:
            SetupError: the workers named do not fit together, or a request fits none of them.
        """
        specs, requests = self.specs(), self.requests()
        if longest := too_large(requests, specs):
            raise SetupError(f"the trace has a request of {longest:,} tokens: more than the KV cache of a worker")
        return Scenario(requests, specs, policy, targets, report_ms=self.report_ms, seed=self.seed)

    def specs(self) -> list[WorkerSpec]:
        """The workers.

        Raises:
            SetupError: one that is killed does not exist, one that joins does already, or more are slow than there are.
        """
        speeds = [1 / speed for count, speed in self.slow for _ in range(count)]
        names = [f"w{number + 1}" for number in range(self.workers)]
        if len(speeds) > self.workers:
            raise SetupError(f"more workers are slow than there are: {len(speeds)} of {self.workers}")
        if early := sorted(set(names) & set(self.joins)):
            raise SetupError(f"{early[0]} can't join: it is there from the start", f"There are {', '.join(names)}.")
        if strangers := self.kills.keys() - {*names, *self.joins}:
            raise SetupError(f"no worker is called {', '.join(sorted(strangers))}", f"There are {', '.join(names)}.")
        slowness = [1.0] * (self.workers - len(speeds)) + speeds
        kv_tokens = self.profile.kv_tokens
        model = WorkerSpec("", self.profile, kv_tokens=kv_tokens, block_tokens=self.trace.block_tokens)
        first = [replace(model, name=name, slowness=slow) for name, slow in zip(names, slowness, strict=True)]
        later = [replace(model, name=name, joins_ms=at_s * 1000) for name, at_s in self.joins.items()]
        return [
            replace(spec, dies_ms=self.kills[spec.name] * 1000) if spec.name in self.kills else spec
            for spec in [*first, *later]
        ]

    def requests(self) -> list[Request]:
        """The trace's, some with an end that their client makes, and the offline ones."""
        chance = random.Random(f"plan {self.seed}")  # noqa: S311 - draws a scenario, guards nothing
        online = self.trace.requests(self.scale)
        if self.cancel_share:
            online = [self._impatient(request, chance) for request in online]
        return [*online, *offline(self.trace, self.offline, chance)]

    def _impatient(self, request: Request, chance: random.Random) -> Request:
        if chance.random() >= self.cancel_share:
            return request
        return replace(request, cancel_ms=request.at_ms + chance.expovariate(1 / PATIENCE_MS))


def offline(trace: Trace, count: int, chance: random.Random) -> list[Request]:
    """So many offline requests at 0 ms with lengths of the trace, nothing shared."""
    rows = chance.choices(trace.rows, k=count)
    return [
        Request(str(number), 0.0, row.prompt_tokens, row.output_tokens, priority=Priority.LOW, tenant="offline")
        for number, row in enumerate(rows)
    ]
