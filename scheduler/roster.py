"""Keeps account of the workers: tells the ledger what they reported, and the log who came, went or fell silent."""

from structlog.typing import FilteringBoundLogger

from protocol.messages import LoadReport
from protocol.watch import WorkerNow
from scheduler.books import Books
from scheduler.policy.view import WorkerView
from scheduler.read import Snapshot

NO_REPORT = LoadReport()


class Roster:
    """The leased workers of one shard.

    Args:
        books: what was assigned since each report, how fast each worker is, which prefixes it holds.
        log: bound to the shard.
        pass_over_ms: whose report is older than this gets no jobs while another's is younger.
        silence_ms: a report older than this is news for the log; dispatch goes on by the ledger.
    """

    def __init__(self, books: Books, log: FilteringBoundLogger, pass_over_ms: float, silence_ms: float) -> None:
        self._books, self._log, self._pass_over_ms, self._silence_ms = books, log, pass_over_ms, silence_ms
        self._leases: dict[str, int] = {}
        self._known: dict[str, WorkerNow] = {}
        self._reports: dict[str, LoadReport] = {}
        self._silent: set[str] = set()
        self._unreadable: dict[str, int] = {}

    def update(self, snapshot: Snapshot) -> tuple[WorkerView, ...]:
        """Take in what was read; yields the workers whose leases hold."""
        self._tell_gone(snapshot)
        self._tell_unreadable(snapshot)
        for worker, now in snapshot.workers.items():
            if worker not in self._known:
                self._log.info("worker_joined", worker=worker, label=now.label, state=now.state, slots=now.slots)
            self._take_report(worker, now)
            self._tell_silence(worker, now, snapshot)
            if not now.held:
                self._books.ledger.idle(worker)
        self._leases |= {worker: lease for worker, lease in snapshot.leases.items() if lease}
        self._known |= snapshot.workers
        leased = {worker: now for worker, now in snapshot.workers.items() if snapshot.leases[worker] > snapshot.now_ms}
        active = {worker: now for worker, now in leased.items() if now.state == "active"}
        # Where none was heard, it was not the workers.
        open_to_jobs = {worker for worker, now in active.items() if self._is_heard(now, snapshot)} or active.keys()
        # No slots: its engine refuses. It must not look like the best that may soon be free.
        takes = {worker for worker in open_to_jobs if leased[worker].slots}
        return tuple(self._view(worker, now, active=worker in takes) for worker, now in leased.items())

    def reclaiming(self, snapshot: Snapshot) -> bool:
        """Whether a worker that lapsed still holds jobs; one that leaves hands its jobs back by itself."""
        return any(
            not lease and self._leases.get(worker, 0) <= snapshot.now_ms for worker, lease in snapshot.leases.items()
        )

    def _tell_gone(self, snapshot: Snapshot) -> None:
        """A worker that leaves has a lease; one whose lease had ended was reclaimed."""
        gone = [worker for worker in self._known if worker not in snapshot.leases]
        for worker in gone:
            last = self._known.pop(worker)
            if self._leases.pop(worker, 0) <= snapshot.now_ms:
                self._log.warning("worker_reclaimed", worker=worker, label=last.label)
            else:
                self._log.info("worker_left", worker=worker, label=last.label)
            self._reports.pop(worker, None)
            self._silent.discard(worker)
        if gone:
            self._books.keep(snapshot.leases)

    def _tell_unreadable(self, snapshot: Snapshot) -> None:
        """A worker that leaves between two reads looks so once; only one that stays so is news."""
        unreadable = snapshot.leases.keys() - snapshot.workers.keys()
        self._unreadable = {worker: self._unreadable.get(worker, 0) + 1 for worker in unreadable}
        for worker, times in self._unreadable.items():
            if times == 2:
                self._log.warning("worker_unreadable", worker=worker)

    def _take_report(self, worker: str, now: WorkerNow) -> None:
        before = self._known.get(worker)
        if before and before.report_ms == now.report_ms:
            return
        if now.report:
            self._reports[worker] = now.report
            self._books.ledger.reported(worker, now.report)
            self._books.speeds.reported(worker, now.report)
            self._books.predictions.reported(now.report)
        elif not before or before.report:
            self._log.warning("report_unreadable", worker=worker, label=now.label)

    def _is_heard(self, now: WorkerNow, snapshot: Snapshot) -> bool:
        return snapshot.now_ms - now.report_ms <= self._pass_over_ms

    def _tell_silence(self, worker: str, now: WorkerNow, snapshot: Snapshot) -> None:
        silent = snapshot.now_ms - now.report_ms > self._silence_ms
        if silent and worker not in self._silent:
            self._silent.add(worker)
            self._log.warning("reports_stopped", worker=worker, label=now.label)
        elif not silent:
            self._silent.discard(worker)

    def _view(self, worker: str, now: WorkerNow, *, active: bool) -> WorkerView:
        return WorkerView(
            id=worker,
            label=now.label,
            active=active,
            slots=now.slots,
            held=now.held,
            solo=now.solo,
            report=self._reports.get(worker, NO_REPORT),
            reported_ms=now.report_ms,
            unseen=self._books.ledger.unseen(worker),
            flow=self._books.ledger.flow(worker),
            speed=self._books.speeds.of(worker),
            models=now.models,
            prefixes=self._books.prefix_map.told_by(worker),
            sent=self._books.prefix_map.sent_to(worker),
        )
