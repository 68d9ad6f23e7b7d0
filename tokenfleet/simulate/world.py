"""The event loop on virtual time: arrivals, steps, reports, deaths, and the dispatcher's rounds between them."""

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from protocol.functions.tick import RECALLED
from protocol.messages import LoadReport
from scheduler.policy.decide import decide
from scheduler.policy.decision import Assignment
from scheduler.policy.ledger import Ledger, Sent
from scheduler.policy.prefix_map import PrefixMap
from scheduler.policy.speeds import Speeds
from scheduler.policy.traffic import Traffic
from scheduler.policy.view import FleetView, WorkerView
from scheduler.shard_loop import GATHER_S
from tokenfleet.simulate.engine import SimWorker, WorkerSpec
from tokenfleet.simulate.job import Outcome, Request
from tokenfleet.simulate.lanes import Entry, Lanes
from tokenfleet.simulate.scenario import Scenario, too_large

PREFIXES_EVERY_MS = 1_000.0
"""How often a worker's prefix set is read, as in scheduler/prefixes.py."""
EVENTS_TOLD = 10_000
"""Between two words on how far it has come."""


@dataclass(slots=True)
class _Known:
    """A worker as the dispatcher knows it."""

    worker: SimWorker
    report: LoadReport
    reported_ms: float = 0.0
    alive: bool = True
    view: WorkerView | None = None
    """None once something has changed."""


class World:
    """One run.

    Raises:
        ValueError: a request does not fit the KV cache of a worker, or two workers have the same name.
    """

    def __init__(self, scenario: Scenario) -> None:
        if len({spec.name for spec in scenario.workers}) < len(scenario.workers):
            raise ValueError("two workers have the same name")
        if too_large(scenario.requests, scenario.workers):
            raise ValueError("a request does not fit the KV cache of a worker")
        self._scenario = scenario
        self.now_ms = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._lanes = Lanes()
        self.ledger, self.speeds, self._prefixes = Ledger(), Speeds(), PrefixMap()
        self._workers: dict[str, _Known] = {}
        self.engines: list[SimWorker] = []
        self.outcomes = {request.ref: Outcome(request, request.view()) for request in scenario.requests}
        self._chance = random.Random(scenario.seed)  # noqa: S311 - breaks ties, guards nothing
        self._attempts = 0
        self._places: dict[str, Entry] = {}
        self._traffic = Traffic()
        self._open = sum(map(self._awaited, scenario.requests))
        self._wake_ms: float | None = None
        self._backlog = self._gathering = False
        self._put_off: dict[str, tuple[float, Entry]] = {}

    def run(self, told: Callable[[float], None] | None = None) -> list[Outcome]:
        """Until every request has ended; the outcomes in the order of the requests.

        Args:
            told: called now and then with the share of the requests that have ended.
        """
        for place, spec in enumerate(self._scenario.workers):
            self._at(spec.joins_ms, partial(self._join, spec, place))
        for request in self._scenario.requests:
            self._at(request.at_ms, partial(self._arrive, request))
            if request.cancel_ms is not None:
                self._at(request.cancel_ms, partial(self._cancel, request))
        count, until_ms = self._open, self._scenario.until_ms
        while self._events and self._open and self.now_ms < until_ms:
            self.now_ms, turn, event = heapq.heappop(self._events)
            event()
            if told and turn % EVENTS_TOLD == 0:
                told(1 - self._open / count)
        return list(self.outcomes.values())

    def _awaited(self, request: Request) -> bool:
        """Whether the run goes on until it has ended."""
        return request.priority.online or not self._scenario.online_only

    def _at(self, moment_ms: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (moment_ms, self._count, event))

    def _arrive(self, request: Request) -> None:
        outcome = self.outcomes[request.ref]
        self._lanes.of[request.priority].add(outcome.job)
        if request.priority.online:
            self._traffic.online_ms = self.now_ms
        self._round()

    def _cancel(self, request: Request) -> None:
        outcome = self.outcomes[request.ref]
        if outcome.ended_ms is not None or outcome.refused:
            return
        outcome.cancelled = True
        self._lanes.of[request.priority].remove(request.ref)
        known = self._workers.get(outcome.worker)
        if known and request.ref in known.worker.jobs:
            known.worker.abort(request.ref)
            known.view = None
            self.ledger.ended(outcome.worker, outcome.attempt)
        self._open -= self._awaited(request)
        self._round()

    def _join(self, spec: WorkerSpec, place: int) -> None:
        worker = SimWorker(spec, self._scenario.targets, self.now_ms)
        self.engines.append(worker)
        self._workers[spec.name] = _Known(worker, worker.report(self.now_ms), self.now_ms)
        first = self.now_ms + self._scenario.report_ms * (place + 1) / len(self._scenario.workers)
        self._at(first, partial(self._report, spec.name))
        self._at(first, partial(self._tell_prefixes, spec.name))
        if spec.dies_ms is not None:
            self._at(spec.dies_ms, partial(self._die, spec.name))
        self._round()

    def _report(self, name: str) -> None:
        known = self._workers.get(name)
        if known is None or not known.alive:
            return
        report, now_ms = known.worker.report(self.now_ms), self.now_ms
        self._at(now_ms + self._scenario.report_ms, partial(self._report, name))
        if self._scenario.late_ms:
            self._at(now_ms + self._scenario.late_ms, partial(self._reported, name, report, now_ms))
        else:
            self._reported(name, report, now_ms)

    def _reported(self, name: str, report: LoadReport, at_ms: float) -> None:
        known = self._workers.get(name)
        if known is None:
            return
        known.report, known.reported_ms, known.view = report, at_ms, None
        self.ledger.reported(name, report)
        self.speeds.reported(name, report)
        self._round()

    def _tell_prefixes(self, name: str) -> None:
        known = self._workers.get(name)
        if known and known.alive:
            self._prefixes.told(name, known.worker.prefixes(), self.now_ms)
            known.view = None
            self._at(self.now_ms + PREFIXES_EVERY_MS, partial(self._tell_prefixes, name))

    def _die(self, name: str) -> None:
        """Nobody notices before its lease ends."""
        known = self._workers[name]
        known.alive, known.worker.died_ms = False, self.now_ms
        self._at(self.now_ms + self._scenario.lease_ms, partial(self._reclaim, name))

    def _reclaim(self, name: str) -> None:
        """Its jobs begin anew, in their places."""
        known = self._workers.pop(name)
        for outcome in known.worker.jobs.values():
            outcome.worker, outcome.started_ms, outcome.first_ms, outcome.tokens = "", None, None, 0
            outcome.tries += 1
            outcome.job = replace(outcome.job, begun=True)
            self._lanes.of[outcome.job.priority].put_back(outcome.job, self._places.pop(outcome.request.ref))
        self.ledger.keep(self._workers)
        self.speeds.keep(self._workers)
        self._prefixes.keep(self._workers)
        self._round()

    def _step(self, known: _Known) -> None:
        ends_ms = known.worker.begin_step(self.now_ms)
        if ends_ms is not None:
            self._at(ends_ms, partial(self._step_ended, known))

    def _step_ended(self, known: _Known) -> None:
        if not known.alive:
            return
        ended = known.worker.end_step(self.now_ms)
        if ended:
            known.view = None
        for outcome in ended:
            self.ledger.ended(outcome.worker, outcome.attempt)
            self._open -= self._awaited(outcome.request)
        self._step(known)
        if ended:
            self._round()

    def _round(self) -> None:
        """What the scheduler does whenever something happened; while jobs are left waiting, it gathers news first."""
        if not self._backlog:
            self._decide()
        elif not self._gathering:
            self._gathering = True
            self._at(self.now_ms + 1000 * GATHER_S, self._gathered)

    def _gathered(self) -> None:
        self._gathering = False
        self._decide()

    def _decide(self) -> None:
        lanes = self._lanes.heads()
        self._backlog = False
        if not lanes:
            return
        scenario = self._scenario
        workers = tuple(self._view_of(name, known) for name, known in self._workers.items())
        lately = self._traffic.lately(self.now_ms)
        view = FleetView(lanes, workers, self.ledger.started, lately, self._prefixes.holders)
        decision = decide(view, self.now_ms, self._chance, scenario.policy, scenario.targets, scenario.window)
        for priority, lane in self._lanes.of.items():
            started = [item.ref for item in decision.assignments if item.priority is priority]
            self._places |= lane.take(started)
        for item in decision.assignments:
            self._assign(item)
        for refusal in decision.refusals:
            outcome = self.outcomes[refusal.ref]
            outcome.refused = True
            self._lanes.of[refusal.priority].remove(refusal.ref)
            self._open -= self._awaited(outcome.request)
        for park in decision.park:
            if entry := self._lanes.of[park.priority].remove(park.ref):
                ripe_ms = self.now_ms + park.delay_ms
                self._put_off[park.ref] = ripe_ms, entry
                self._at(ripe_ms, partial(self._ripen, park.ref, ripe_ms))
        if decision.spare and self._put_off:
            self._at(self.now_ms, self._recall)
        self._backlog = any(len(lane) for lane in self._lanes.of.values())
        if decision.wake_at_ms is not None and (self._wake_ms is None or decision.wake_at_ms < self._wake_ms):
            self._wake_ms = max(decision.wake_at_ms, self.now_ms + 1)
            self._at(self._wake_ms, self._woken)

    def _ripen(self, ref: str, ripe_ms: float) -> None:
        """A parked job comes back to its place, unless it was called back before."""
        if self._put_off.get(ref, (0.0,))[0] == ripe_ms:
            self._come_back([ref])

    def _recall(self) -> None:
        self._come_back(list(islice(self._put_off, RECALLED)))

    def _come_back(self, refs: Sequence[str]) -> None:
        for ref in refs:
            outcome, (_, entry) = self.outcomes[ref], self._put_off.pop(ref)
            if not outcome.cancelled:
                self._lanes.of[outcome.request.priority].put_back(outcome.job, entry)
        self._round()

    def _woken(self) -> None:
        self._wake_ms = None
        self._round()

    def _view_of(self, name: str, known: _Known) -> WorkerView:
        if known.view is None:
            known.view = WorkerView(
                name,
                name,
                active=True,
                slots=known.worker.spec.sequences,
                held=len(known.worker.jobs),
                report=known.report,
                reported_ms=known.reported_ms,
                unseen=self.ledger.unseen(name),
                flow=self.ledger.flow(name),
                prefixes=self._prefixes.told_by(name),
                sent=self._prefixes.sent_to(name),
                speed=self.speeds.of(name),
            )
        return known.view

    def _assign(self, given: Assignment) -> None:
        outcome, known, name = self.outcomes[given.ref], self._workers[given.worker], given.worker
        self._attempts += 1
        if not outcome.request.priority.online:
            self._traffic.offline_ms = self.now_ms
        outcome.attempt, outcome.predicted_ms = self._attempts, given.predicted_ms
        sent = Sent(self.now_ms, given.prompt_tokens, given.work_ms, outcome.job.tokens)
        self.ledger.assigned(name, self._attempts, sent)
        self.speeds.assigned(name, self._attempts, given.predicted_ms, given.pending_ms)
        self._prefixes.assigned(name, outcome.job.spec.prefix, self.now_ms)
        known.worker.start(outcome, given.prompt_tokens, self.now_ms)
        known.view = None
        if known.alive and known.worker.step is None:
            self._step(known)
