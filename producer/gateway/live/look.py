"""One look at the fleet as messages for those who look: whole, or what changed since an earlier one. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from producer.dead import SetAside
from producer.gateway.live.history import Figures, History
from producer.overview import Overview
from producer.scope import Scope
from protocol.wire import JsonObject, dumps


@dataclass(frozen=True, slots=True)
class Look:
    """What the reader saw at one moment. What is made of it is made once for all who may see the same."""

    number: int
    overview: Overview
    set_aside: Sequence[SetAside]
    figures: Figures
    _documents: dict[Scope, JsonObject] = field(default_factory=dict)
    _wholes: dict[Scope, bytes] = field(default_factory=dict)
    _changes: dict[tuple[Scope, int], bytes] = field(default_factory=dict)

    def whole(self, scope: Scope, history: History) -> bytes:
        """All that `scope` may see, with how the figures went."""
        made = self._wholes.get(scope)
        if made is None:
            made = self._wholes[scope] = dumps({**self._document(scope), "history": history.to_json()})
        return made

    def since(self, before: Self, scope: Scope) -> bytes:
        """The same for one who has `before`: of each worker's jobs only those that are new, or gone."""
        made = self._changes.get((scope, before.number))
        if made is None:
            made = self._changes[scope, before.number] = dumps(
                _changed(self._document(scope), _jobs_by_worker(before._document(scope)))
            )
        return made

    def _document(self, scope: Scope) -> JsonObject:
        made = self._documents.get(scope)
        if made is None:
            seen = [_shown(job) for job in self.set_aside if scope.holds(job.handle)]
            told = {"figures": self.figures, "set_aside": seen}
            made = self._documents[scope] = {**self.overview.seen_by(scope).to_json(), **told}
        return made


def _shown(job: SetAside) -> JsonObject:
    model = job.record.spec.model if job.record else ""
    return {"id": str(job.handle), "code": job.code, "model": model, "at_ms": job.at_ms}


def _jobs_by_worker(document: JsonObject) -> dict[tuple[str, str], list[str]]:
    return {
        (shard["shard"], worker["id"]): worker["jobs"] for shard in document["shards"] for worker in shard["workers"]
    }


def _changed(document: JsonObject, before: dict[tuple[str, str], list[str]]) -> JsonObject:
    shards = [
        {
            **shard,
            "workers": [_worker(worker, before.get((shard["shard"], worker["id"]))) for worker in shard["workers"]],
        }
        for shard in document["shards"]
    ]
    return {**document, "shards": shards}


def _worker(worker: JsonObject, before: list[str] | None) -> JsonObject:
    if before is None:
        return worker
    rest: dict[str, Any] = {name: value for name, value in worker.items() if name != "jobs"}
    had, has = set(before), set(worker["jobs"])
    rest["added"] = [job for job in worker["jobs"] if job not in had]
    rest["gone"] = [job for job in before if job not in has]
    return rest
