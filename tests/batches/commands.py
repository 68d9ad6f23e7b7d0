"""`tokenfleet batch run` as users run it, and what stands in its files."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.wire import loads
from tests.support.nursery import Nursery
from tests.support.waiting import eventually

CASES = Path(__file__).parents[1] / "producer" / "batches"
LONGEST_S = 120.0
_PROBLEM = re.compile(r"^(?P<file>.+\.jsonl):(?P<line>\d+): (?P<code>[a-z_]+): (?P<message>.+)$")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    said: str
    out: dict[str, Any]
    errors: dict[str, Any]
    """Both: custom_id → line, in which no id stands twice."""

    @property
    def problems(self) -> list[tuple[int, str, str]]:
        """(line, code, message) of each bad line of the input that it told of."""
        found = [_PROBLEM.match(line) for line in self.said.splitlines()]
        return [(int(problem["line"]), problem["code"], problem["message"]) for problem in found if problem]


@dataclass(frozen=True)
class Shell:
    """Runs commands against one fleet."""

    nursery: Nursery
    redis_url: str
    folder: Path

    async def batch(self, name: str, *options: str) -> Ended:
        """`batch run` of one of the cases."""
        out, errors = self.folder / "out.jsonl", self.folder / "errors.jsonl"
        files = ["-i", str(CASES / f"{name}.jsonl"), "-o", str(out), "--errors", str(errors)]
        code, said = await self._run("batch", "run", *files, *options)
        return Ended(code, said, _lines(out), _lines(errors))

    async def proven(self, name: str) -> bool:
        """Whether `batch reconcile` says that each line of the case has its line."""
        files = [str(CASES / f"{name}.jsonl"), str(self.folder / "out.jsonl"), str(self.folder / "errors.jsonl")]
        code, said = await self._run("batch", "reconcile", *files)
        return code == 0 and "proven" in said

    async def _run(self, *words: str) -> tuple[int, str]:
        log = self.folder / f"{words[1]}.log"
        pid = self.nursery.fork(words, {"TOKENFLEET_REDIS_URL": self.redis_url, "COLUMNS": "200"}, log)
        ended: Callable[[], bool] = lambda: self.nursery.code(pid) is not None  # noqa: E731 - typed for `eventually`
        await eventually(ended, LONGEST_S)
        return self.nursery.code(pid) or 0, log.read_text()


def _lines(path: Path) -> dict[str, Any]:
    """By custom_id; a bad line without one by the line that its error names."""
    lines = [loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
    found = {line["custom_id"] or line["error"]["message"].partition(":")[0]: line for line in lines}
    assert len(found) == len(lines)
    return found
