"""API keys as a table and as JSON: pure, and never the keys themselves."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from protocol.api_keys import NamedKey
from protocol.limits import Limits
from protocol.states import Priority
from protocol.wire import JsonObject
from tokenfleet.cli.durations import moment
from tokenfleet.terminal import harmless


def as_table(found: Sequence[NamedKey]) -> RenderableType:
    """A line for each."""
    if not found:
        return Text("no key was created")
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("id", "ends", "tenant", "may", "limits", "created", "revoked", "note"):
        # Whole in a narrow terminal too: `keys revoke` wants it.
        table.add_column(name, overflow="fold", no_wrap=name == "id")
    for key in found:
        record = key.record
        when = moment(record.created_ms), moment(record.revoked_ms)
        who = key.id, f"…{harmless(record.last_four)}", harmless(record.tenant)
        table.add_row(*map(Text, (*who, _may(key), _limits(record.limits), *when, harmless(record.note))))
    return table


def as_json(key: NamedKey) -> JsonObject:
    """What the table shows, for machines."""
    return {"id": key.id, **key.record.model_dump(mode="json")}


def _may(key: NamedKey) -> str:
    priorities, models = key.record.priorities, key.record.models
    words = [] if set(priorities) == set(Priority) else [", ".join(priorities)]
    words += [", ".join(map(harmless, models))] if models else []
    seen = "; sees all tenants" if key.record.operator else ""
    return ("; ".join(words) or "all") + seen


def _limits(limits: Limits) -> str:
    told = {
        "requests/min": limits.requests_a_minute,
        "tokens/min": limits.tokens_a_minute,
        "jobs": limits.jobs,
        "bytes": limits.bytes,
    }
    return ", ".join(f"{count:,} {what}" for what, count in told.items() if count) or "none"
