"""What `tokenfleet top` shows of a moment, within the terminal's lines. Pure."""

from dataclasses import dataclass
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from producer.overview import Overview, ShardView
from tokenfleet.cli.durations import in_words
from tokenfleet.terminal import harmless
from tokenfleet.top.parts import LEAST_LINES, Part, batches_part, line, shard_part

HELP = "q quits"
LEAST_BATCHES = 3
"""Lines for the headings, a batch, and how many more there are."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What is known when the screen is drawn."""

    where: str
    """Redis's URL without its password."""
    clock: datetime
    overview: Overview | None
    """None before the first look."""
    trouble: str = ""
    """Why there is no newer one; empty when it is new."""
    silent_s: float = 0.0
    """For how long there was none."""


def screen(moment: Moment, width: int, height: int) -> RenderableType:
    """All of it in at most `height` lines of `width` columns; fewer than 12 lines cut something off."""
    seen = moment.overview
    head = [_title(moment), *([_figures(seen)] if seen else []), *_warnings(moment)]
    if seen is None:
        return Group(*head)
    if not seen.shards:
        start = "No worker ever registered a model here. Start one:\n  tokenfleet worker --model NAME --engine …"
        return Group(*head, Text(start))
    batches = batches_part(seen.batches, max(LEAST_BATCHES, height // 4), width)
    shards = _shards(seen.shards, height - len(head) - batches.lines, width)
    return Group(*head, *shards, *batches.drawn)


def _shards(shards: tuple[ShardView, ...], room: int, width: int) -> list[RenderableType]:
    """Each gets its share of what the ones before have left; those that get too few lines are only counted."""
    drawn: list[RenderableType] = []
    for number, shard in enumerate(shards):
        others = len(shards) - number
        if number and room < LEAST_LINES + (others > 1):
            return [*drawn, line(Text(f"… and {others} more shards" if others > 1 else "… and one more shard", "dim"))]
        part: Part = shard_part(shard, max(LEAST_LINES, room // others), width)
        drawn += part.drawn
        room -= part.lines
    return drawn


def _title(moment: Moment) -> Text:
    clock = f"{moment.clock:%H:%M:%S}"
    return line(Text.assemble(("tokenfleet top", "bold"), f"   {clock}   {HELP}   ", (harmless(moment.where), "dim")))


def _figures(seen: Overview) -> Text:
    firsts, speed = seen.first_tokens, seen.tokens_per_s
    known = firsts.p50_ms is not None and firsts.p95_ms is not None
    waits = f"p50 {_ms(firsts.p50_ms)}, p95 {_ms(firsts.p95_ms)}" if known else "-"
    dead = (f"{seen.dead:,} dead", "bold red" if seen.dead else "dim")
    return line(
        Text.assemble(
            *(("-" if speed is None else f"{speed:,.0f}", "bold"), (" tokens/s   ", "dim")),
            *(("first token ", "dim"), (waits, "bold"), "   ", dead),
        )
    )


def _ms(ms: int | None) -> str:
    return in_words((ms or 0) / 1000)


def _warnings(moment: Moment) -> list[Text]:
    seen, found = moment.overview, []
    if moment.trouble:
        found = [moment.trouble, *([f"what follows is {in_words(moment.silent_s)} old"] if seen else [])]
    elif seen and seen.unled:
        found = [f"no scheduler leads {', '.join(map(str, seen.unled))}: nothing is assigned"]
    return [line(Text(f"! {harmless(text)}", "bold red")) for text in found]
