"""Batch inputs of the tests, and what became of one when it was taken in."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from producer.batch.intake import Intake, refusal, take_in
from producer.batch.judge import Rules
from producer.batch.ledger import Ledger
from protocol.errors import Problem

BATCHES = Path(__file__).parent / "batches"
RULES = Rules(max_body_bytes=2 * 1024 * 1024)


@dataclass
class Taken:
    """An intake, with all that its ledger says."""

    intake: Intake
    refused: bool
    problems: list[Problem]
    runnable: dict[str, bytes]
    """Bytes of each row that can be run, in the order of sending, by its id."""

    @property
    def said(self) -> list[tuple[int, str, str | None]]:
        return [(problem.line, problem.code, problem.param) for problem in self.problems]


async def taken(path: Path | str, folder: Path, rules: Rules = RULES, limit: int | None = None) -> Taken:
    with Ledger.create(folder / "state") as ledger:
        intake = await take_in(path, ledger, rules, spool=folder / "spool", limit=limit)
        refused = refusal(intake, ledger, skip=False) is not None
        problems = ledger.problems(0, 10_000)
        ledger.plan(group=False, dedup=rules.dedup)
        data = await asyncio.to_thread(Path(intake.readable).read_bytes)
        rows = {str(todo.custom_id): data[todo.start : todo.start + todo.length] for todo in ledger.todo(0, 10_000)}
        assert ledger.counts().rows == intake.rows
        assert len(problems) == intake.bad == ledger.counts().bad
    return Taken(intake, refused, problems, rows)


def row(
    custom_id: str | None = "r", model: str | None = "m", url: str | None = "/v1/chat/completions", **body: Any
) -> str:
    content = (
        {"messages": [{"role": "user", "content": "hello"}]} if url == "/v1/chat/completions" else {"prompt": "hi"}
    )
    full = {"model": model, **content, **body}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": full})


def write(file: Path, *lines: str) -> None:
    file.write_text("".join(f"{line}\n" for line in lines))
