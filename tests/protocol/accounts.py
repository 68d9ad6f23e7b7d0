"""What the buckets of API keys must hold after a step, from what they and the jobs held before it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from protocol import keys
from protocol.handle import Handle
from protocol.messages import JobSpec, Outcome
from protocol.states import State
from tests.support.builders import SHARD
from tests.support.snapshot import Snapshot

Hash = Mapping[str, str]
DEBT_MOST_MIN = 10


@dataclass
class Change:
    """What one step does to a bucket."""

    requests: int = 0
    tokens: int = 0


def wrong(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """Every bucket that changed in another way than its jobs did."""
    changes = _changes(before, after)
    old, new = (seen.of_kind(str(SHARD), "bucket") for seen in (before, after))
    for name in new.keys() | changes.keys():
        if name not in new:
            # After the last job's end it may have faded at once; one with a job alive must be there.
            if changes[name].requests:
                yield f"{name} has no bucket after {changes[name]}"
            continue
        then: Hash = old[name].value if name in old else {}
        now: Hash = new[name].value
        for kind in ("requests", "tokens"):
            wanted = _wanted(then, now, kind, changes.get(name))
            if float(now[kind]) != pytest.approx(wanted, abs=1e-6):
                yield f"{name} has spent {now[kind]} {kind}, must be {wanted}: {then} → {now}"


def _wanted(then: Hash, now: Hash, kind: str, change: Change | None) -> float:
    """The same as before, while nothing took or gave: it fades only when it is looked at to change it."""
    spent, rate = float(then.get(kind, 0)), int(now[f"{kind}_a_minute"])
    if change is None:
        return spent
    passed_ms = max(0, int(now["at"]) - int(then.get("at", now["at"])))
    left = max(0.0, spent - passed_ms * rate / 60_000)
    return min(max(0.0, left + getattr(change, kind)), DEBT_MOST_MIN * rate) if rate else 0.0


def _changes(before: Snapshot, after: Snapshot) -> dict[str, Change]:
    changes: dict[str, Change] = defaultdict(Change)
    old, new = (seen.of_kind(str(SHARD), "job") for seen in (before, after))
    for ref, entry in new.items():
        then: Hash = old[ref].value if ref in old else {}
        now: Hash = entry.value
        if "bucket" not in now:
            continue
        lived, lives = (job.get("state") is not None and not State(job["state"]).terminal for job in (then, now))
        if lived == lives:
            continue
        change = changes[f"{ref.split(':')[0]}:{now['bucket'].split()[0]}"]
        if lives:
            change.requests += 1
            change.tokens += _cost(now)
        else:
            change.tokens += _used(before, after, Handle.of(SHARD, ref), then) - _cost(then)
    return changes


def _cost(job: Hash) -> int:
    return JobSpec.model_validate_json(job["spec"]).cost_tokens


def _used(before: Snapshot, after: Snapshot, handle: Handle, job: Hash) -> int:
    """What its engine counted; else the prompt and what was said, of a job that somebody could read along."""
    told = Outcome.model_validate_json(after.value(keys.result(handle))).used_tokens
    spec = JobSpec.model_validate_json(job["spec"])
    if told is not None:
        return told
    if "started" not in job:
        return 0
    log = [entry_id.split("-")[0] for entry_id, _ in before.value(keys.tokens(handle), [])]
    if not spec.stream and not log:
        return spec.cost_tokens
    return min(spec.cost_tokens, spec.prompt_tokens + log.count(log[-1] if log else ""))
