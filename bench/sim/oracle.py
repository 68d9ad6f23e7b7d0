"""Checks every rule after each command that wrote, and each function's answer by what Redis held before the call."""

from collections.abc import Callable, Collection, Sequence

from bench.sim.store import Past, Store
from bench.sim.world import Actor
from protocol import keys
from protocol.call import Arg
from protocol.states import State
from tests.protocol.rules import Mark, Rules
from tests.support.builders import SHARD

_NO_PLACES = frozenset({keys.events(SHARD), keys.leader(SHARD), keys.fleet(SHARD), keys.MODELS})
"""No rule is about what stands there, but for who leads."""


class Violation(AssertionError):
    """A rule was broken."""


class Oracle:
    """Sees all that is carried out. Whoever it lets pass has broken no rule so far.

    Args:
        store: what it looks at.
        poison: the names, inside their shard, of the only jobs that may be set aside.

    Attributes:
        accepted: jobs that were ever stored.
        strikes: given so far.
    """

    def __init__(self, store: Store, poison: Collection[str]) -> None:
        self._store, self._poison = store, poison
        self.rules = Rules(lambda: store.snapshot)
        self.accepted: set[str] = set()
        self.strikes = 0
        self._judges: dict[str, Callable[[Sequence[str], object], str]] = {
            "emit": self._emit,
            "finish": self._finish,
            "requeue": self._requeue,
            "start": self._start,
            "assign": self._assign,
            "submit": self._submit,
        }

    def after(self, actor: Actor, command: Sequence[Arg], reply: object) -> set[str]:
        """Check; yields the keys that changed.

        Raises:
            Violation: a rule was broken.
        """
        found = []
        if command[0] == "FCALL" and not isinstance(reply, Exception):
            judge = self._judges.get(str(command[1]).partition("_")[2])
            told = judge([_text(part) for part in command[3 + int(command[2]) :]], reply) if judge else ""
            found = [told] if told else []
        changed = self._store.look()
        if changed <= _NO_PLACES:
            self.rules.note_leader()
        else:
            before = self.rules.jobs
            found += self.rules.broken()
            found += [each for ref in before.keys() | self.rules.jobs if (each := self._odd(ref, before.get(ref)))]
        if found:
            raise Violation("\n".join([f"after {actor.name}'s {_text(command[1])}:", *found]))
        return changed

    def remember(self) -> tuple[Past, Mark]:
        """The present, for `go_back`."""
        return self._store.remember(), self.rules.mark()

    def go_back(self, past: tuple[Past, Mark]) -> None:
        """Redis restarts from what it held then."""
        self._store.go_back(past[0])
        self._store.look()
        self.rules.rewind(past[1])

    def _odd(self, ref: str, before: object) -> str:
        job = self.rules.jobs.get(ref)
        if job is before:
            return ""
        old = before if isinstance(before, dict) else {}
        if job is None:
            return "" if State(old["state"]).terminal else f"{ref} was {old['state']} and is lost"
        if int(job.get("strikes", 0)) > int(old.get("strikes", 0)):
            self.strikes += 1
            if old.get("state") != State.RUNNING:
                return f"{ref} got a strike, and was {old.get('state')}"
        if "dead" in job and ref not in self._poison:
            return f"{ref} was set aside, and is no poison: {job.get('history')}"
        return ""

    def _must_hold(self, ref: str, attempt: str, worker: str) -> str:
        if self.rules.holds(ref, int(attempt), worker):
            return ""
        return f"worker {worker} was heard for attempt {attempt} of {ref}, but: {self.rules.jobs.get(ref)}"

    def _emit(self, args: Sequence[str], reply: object) -> str:
        return "" if reply == -1 else self._must_hold(*args[:3])

    def _finish(self, args: Sequence[str], reply: object) -> str:
        ref, attempt, worker = args[:3]
        if _first(reply) == b"stale" or self.rules.recorded(ref, int(attempt)):
            return ""
        return self._must_hold(ref, attempt, worker)

    def _requeue(self, args: Sequence[str], reply: object) -> str:
        return "" if _first(reply) == b"stale" else self._must_hold(*args[:3])

    def _start(self, args: Sequence[str], reply: object) -> str:
        return "" if _first(reply) == b"stale" else self._must_hold(*args[:3])

    def _assign(self, args: Sequence[str], reply: object) -> str:
        if _first(reply) == b"not_leader" or args[0] == self.rules.leader:
            return ""
        return f"the dispatcher {args[0]} assigned without the lead of {self.rules.leader or 'nobody'}"

    def _submit(self, args: Sequence[str], reply: object) -> str:
        if isinstance(reply, list) and reply[0] == b"ok":
            self.accepted.add(args[0])
        return ""


def _first(reply: object) -> object:
    return reply[0] if isinstance(reply, list) and reply else reply


def _text(part: Arg) -> str:
    return part.decode(errors="replace") if isinstance(part, bytes) else str(part)
