"""The dispatcher's own counters beside the workers' reports, which are always old."""

from collections.abc import Collection
from dataclasses import dataclass, field

from protocol.messages import LoadReport
from scheduler.policy.view import NO_FLOW, NOTHING_UNSEEN, Arrival, Flow, Unseen


@dataclass(frozen=True, slots=True)
class Sent:
    """An attempt that went to a worker's inbox.

    Attributes:
        at_ms: when.
        prompt_tokens: what the engine must compute of its prompt.
        work_ms: how much longer that makes the reference engine's steps.
        kv_tokens: prompt and output: what it will hold.
    """

    at_ms: float
    prompt_tokens: int
    work_ms: float
    kv_tokens: int

    @property
    def arrival(self) -> Arrival:
        """As a decision sees it."""
        return Arrival(self.at_ms, self.prompt_tokens, self.work_ms)


@dataclass(slots=True)
class _Account:
    """One worker's attempts that no report contains yet, the highest that one contains, and what came lately."""

    attempts: dict[int, Sent] = field(default_factory=dict)
    taken: int = 0
    flow: Flow = NO_FLOW


class Ledger:
    """Counts what was assigned to each worker since its last report.

    It can't drift: it keeps the attempts themselves, so each leaves once, by whichever comes first (a report that
    contains it, its end, or the worker's), and reports that overtake an assignment are remembered.
    """

    def __init__(self) -> None:
        self.started = 0
        """How many jobs were assigned so far: `FleetView.turn`."""
        self._accounts: dict[str, _Account] = {}

    def __len__(self) -> int:
        """How many attempts are counted: none once all have been reported or have ended."""
        return sum(len(account.attempts) for account in self._accounts.values())

    def assigned(self, worker: str, attempt: int, sent: Sent) -> None:
        """An attempt went to the worker's inbox."""
        self.started += 1
        account = self._accounts.setdefault(worker, _Account())
        account.flow = account.flow.plus(sent.arrival)
        if attempt > account.taken:
            account.attempts[attempt] = sent

    def reported(self, worker: str, report: LoadReport) -> None:
        """The worker published a report: it contains all attempts up to `report.taken`."""
        account = self._accounts.setdefault(worker, _Account())
        if report.taken > account.taken:
            account.taken = report.taken
            account.attempts = {n: sent for n, sent in account.attempts.items() if n > report.taken}

    def ended(self, worker: str, attempt: int) -> None:
        """The attempt ended, or was taken from the worker, whether a report ever contained it or not."""
        if account := self._accounts.get(worker):
            account.attempts.pop(attempt, None)

    def idle(self, worker: str) -> None:
        """Redis says that the worker holds nothing: attempts that ended before a report contained them are over."""
        if account := self._accounts.get(worker):
            account.attempts.clear()

    def keep(self, workers: Collection[str]) -> None:
        """Forget all other workers; an id that is gone never comes back."""
        self._accounts = {name: account for name, account in self._accounts.items() if name in workers}

    def unseen(self, worker: str) -> Unseen:
        """The sum over the attempts that no report of the worker contains yet."""
        account = self._accounts.get(worker)
        if not account or not account.attempts:
            return NOTHING_UNSEEN
        sent = account.attempts.values()
        return Unseen(
            jobs=len(sent),
            prompt_tokens=sum(one.prompt_tokens for one in sent),
            kv_tokens=sum(one.kv_tokens for one in sent),
            arrivals=tuple(one.arrival for one in sent),
        )

    def flow(self, worker: str) -> Flow:
        """What was assigned to the worker lately, whether a report contains it or not."""
        account = self._accounts.get(worker)
        return account.flow if account else NO_FLOW
