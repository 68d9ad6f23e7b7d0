"""What each side measured, and what it guarantees beside."""

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Self

from rich.console import Console
from rich.table import Table


@dataclass(slots=True)
class Row:
    """One side: medians of the rounds' quantiles, in ms beyond the engine's own time."""

    p50: float
    p99: float
    idle_kb: float = 0.0
    """0 where it was not measured."""

    @classmethod
    def of(cls, rounds: Sequence[Sequence[float]]) -> Self:
        """From what each chat of each round took."""
        cuts = [statistics.quantiles(one, n=100, method="inclusive") for one in rounds]
        return cls(*(statistics.median(cut[at - 1] for cut in cuts) for at in (50, 99)))

    def figures(self) -> dict[str, float]:
        """For machines."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Promise:
    """What a gateway guarantees; of the peers, as of the locked versions."""

    restart: str
    """What becomes of a request when the gateway is restarted."""
    resumes: str
    priorities: str
    limits: str
    """Whether they are shared between processes."""


PROMISES = {
    "tokenfleet": Promise("goes on", "yes, at any gateway", "yes", "yes"),
    "litellm": Promise("lost", "no", "beta, by polling", "with Redis"),
    "vllm-router": Promise("lost", "no", "no", "no"),
}


def show_rows(rows: Mapping[str, Row], missing: Sequence[str], *, as_json: bool) -> None:
    """Print all sides; on stderr where machines read stdout."""
    table = Table(title="time to first byte beyond the engine's own, and guarantees", title_justify="left")
    for heading in ("side", "p50 ms", "p99 ms", "KB a stream", "restarted", "resumes", "priorities", "shared limits"):
        table.add_column(heading, justify="right" if heading[0] in "pK" and heading != "priorities" else "left")
    for name, row in rows.items():
        promise = PROMISES.get(name)
        idle = f"{row.idle_kb:.1f}" if row.idle_kb else "–"
        said = astuple(promise) if promise else ("–",) * 4
        table.add_row(name, f"{row.p50:.1f}", f"{row.p99:.1f}", idle, *said)
    for name in missing:
        table.add_row(name, "not installed", "–", "–", *astuple(PROMISES[name]))
    Console(file=sys.stderr if as_json else sys.stdout, width=120).print(table)
