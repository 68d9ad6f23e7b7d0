"""Request traces: published ones from files, and generated ones where there is none."""

import csv
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from protocol.errors import InvalidRequest, SetupError
from protocol.states import Priority
from protocol.wire import JsonObject, loads
from tokenfleet.simulate.generated import SHAPES, Row, generate
from tokenfleet.simulate.job import Request

FOLDER_VARIABLE = "TRACES"
DEFAULT_FOLDER = "traces"
HASHED_TOKENS = 512
"""What each of Mooncake's hashes stands for."""
STEP_MS = 3_000.0
"""Mooncake's arrivals stand in steps of so long."""
LATEST_MS, LONGEST_MS = 1e15, 366 * 86_400_000.0
"""A later time is none, and a longer trace has its times in another unit."""


@dataclass(frozen=True, slots=True)
class Published:
    """A trace that anybody can have.

    Attributes:
        file: what it is called in the folder.
        source: where it is published.
    """

    file: str
    source: str


PUBLISHED = {
    "azure": Published(
        "azure2023_conv.csv",
        "github.com/Azure/AzurePublicDataset, data/AzureLLMInferenceTrace_conv.csv (CC-BY-4.0)",
    ),
    "mooncake": Published(
        "mooncake_conversation_trace.jsonl",
        "github.com/kvcache-ai/Mooncake, FAST25-release/traces/conversation_trace.jsonl (Apache-2.0)",
    ),
    "servegen": Published(
        "servegen_m_small_day2_18h_20min.csv",
        "github.com/alibaba/ServeGen: drawn from its client models m-small, day 2, 18 h, 20 requests/s (Apache-2.0)",
    ),
}


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests at the load that they were recorded at.

    Attributes:
        name: of the trace.
        rows: in the order of their arrival, the first at 0 ms.
        block_tokens: what each of a row's block names stands for.
        missing: which file is not there, and where it is published, when a generated trace stands in for it.
    """

    name: str
    rows: tuple[Row, ...]
    block_tokens: int = 16
    missing: str = ""

    def first(self, rows: int | None) -> "Trace":
        """Its beginning; None takes it all."""
        return replace(self, rows=self.rows[:rows])

    def requests(self, scale: float = 1.0, priority: Priority = Priority.HIGH, tenant: str = "t") -> list[Request]:
        """The same requests, `scale` times as fast."""
        return [
            Request(
                str(number),
                row.at_ms / scale,
                row.prompt_tokens,
                row.output_tokens,
                row.blocks,
                self.block_tokens,
                priority,
                tenant,
            )
            for number, row in enumerate(self.rows)
        ]


def load(name: str, seed: int = 0) -> Trace:
    """A trace by its name in `PUBLISHED`, `generated`, or the path of a file in one of the three formats.

    Where a published one is missing, a generated one of the same rate and kind of lengths stands in for it.

    Raises:
        SetupError: there is no such file, or it is in none of the formats.
    """
    if name == "generated":
        return Trace(name, tuple(generate(SHAPES[name], seed)), SHAPES[name].block_tokens)
    known = PUBLISHED.get(name)
    if known is None:
        return replace(read(Path(name)), name=Path(name).stem)
    path = found(FOLDER_VARIABLE, DEFAULT_FOLDER, known.file)
    if path.is_file():
        return replace(read(path), name=name)
    missing = f"{path} is not there; {FOLDER_VARIABLE} names its folder. It is published at {known.source}"
    shape = SHAPES[name]
    return Trace(f"{name} (GENERATED)", tuple(generate(shape, seed)), shape.block_tokens, missing)


def found(variable: str, folder: str, file: str) -> Path:
    """Where a file should be: in the folder that a variable names, else in `folder` here or in a folder beside this."""
    if named := os.environ.get(variable):
        return Path(named) / file
    here = Path(folder) / file
    return here if here.is_file() else next(iter(sorted(Path("..").glob(f"*/{folder}/{file}"))), here)


def read(path: Path) -> Trace:
    """The trace in a file; what it looks like decides on its format.

    Raises:
        SetupError: it can't be read, or is in none of the formats.
    """
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            first = lines.readline()
            lines.seek(0)
            rows, block_tokens = _rows(first, lines)
    except (OSError, ValueError, KeyError, TypeError, csv.Error, InvalidRequest) as error:
        raise SetupError(f"the trace {path} can't be read: {type(error).__name__}: {error}") from None
    if not rows:
        raise SetupError(f"the trace {path} holds no requests")
    rows.sort(key=lambda row: row.at_ms)
    begin_ms = rows[0].at_ms
    if rows[-1].at_ms - begin_ms > LONGEST_MS:
        raise SetupError(f"the trace {path} is longer than a year", "Are its times in the unit of its format?")
    return Trace(path.stem, tuple(replace(row, at_ms=row.at_ms - begin_ms) for row in rows), block_tokens)


def _rows(first: str, lines: Iterable[str]) -> tuple[list[Row], int]:
    if first.startswith("{"):
        return _spread([_mooncake(loads(line)) for line in lines if line.strip()]), HASHED_TOKENS
    for column, parse in _CSV.items():
        if column in first.strip().split(","):
            return [parse(fields) for fields in csv.DictReader(lines)], 16
    known = "Mooncake (JSON lines), Azure and ServeGen (CSV)"
    raise ValueError(f"it begins like none of the formats of {known}")


def _azure(fields: dict[str, str]) -> Row:
    # Seven digits of a second's fraction: one more than Python reads.
    at = datetime.fromisoformat(fields["TIMESTAMP"][:26])
    return _row(at.timestamp() * 1000, int(fields["ContextTokens"]), int(fields["GeneratedTokens"]))


def _servegen(fields: dict[str, str]) -> Row:
    return _row(float(fields["timestamp_ms"]), int(fields["input_length"]), int(fields["output_length"]))


_CSV: dict[str, Callable[[dict[str, str]], Row]] = {"TIMESTAMP": _azure, "timestamp_ms": _servegen}
"""Column → how a row of its format is read."""


def _mooncake(line: JsonObject) -> Row:
    blocks = tuple(int(block) for block in line["hash_ids"])
    return _row(float(line["timestamp"]), int(line["input_length"]), int(line["output_length"]), blocks)


def _row(at_ms: float, prompt_tokens: int, output_tokens: int, blocks: tuple[int, ...] = ()) -> Row:
    """Some rows of the traces have no prompt or no output: each gets one token at least.

    Raises:
        ValueError: the time is none.
    """
    if not abs(at_ms) < LATEST_MS:
        raise ValueError(f"{at_ms} ms is no time")
    return Row(at_ms, max(1, prompt_tokens), max(1, output_tokens), blocks)


def _spread(rows: list[Row]) -> list[Row]:
    """Arrivals that stand in one step, evenly over it."""
    counts = Counter(row.at_ms for row in rows)
    moments = sorted(counts)
    after = dict(zip(moments, [*moments[1:], moments[-1] + STEP_MS], strict=True)) if moments else {}
    return list(_spread_over(rows, counts, after))


def _spread_over(rows: list[Row], counts: Counter[float], after: dict[float, float]) -> Iterator[Row]:
    seen: Counter[float] = Counter()
    for row in rows:
        length_ms = min(after[row.at_ms] - row.at_ms, STEP_MS)
        yield replace(row, at_ms=row.at_ms + length_ms * seen[row.at_ms] / counts[row.at_ms])
        seen[row.at_ms] += 1
