"""Grafana's JSON, of panels that say what they ask Prometheus for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from protocol.wire import JsonObject

FOLDER = Path(__file__).parents[2] / "deploy" / "observe" / "grafana"
WIDTH, HEIGHT, STAT_HEIGHT = 24, 8, 4
_SOURCE = {"type": "prometheus", "uid": "${source}"}
Kind = Literal["timeseries", "stat"]


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression, and what its series are called (Grafana's `{{label}}`)."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture.

    Attributes:
        title: what is seen.
        unit: Grafana's name for it, as `s`, `reqps`, `percentunit`.
        queries: what is asked.
        kind: how it is drawn.
        means: what to make of it; shown at the panel's corner.
    """

    title: str
    unit: str
    queries: Sequence[Query]
    kind: Kind = "timeseries"
    means: str = ""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Rows of panels; those of a row share its width.

    Attributes:
        name: of the file, and Grafana's uid.
        title: what people see.
        variables: names and queries of what can be chosen.
        rows: the panels by the rows' titles.
    """

    name: str
    title: str
    variables: Sequence[tuple[str, str]]
    rows: Sequence[tuple[str, Sequence[Panel]]]

    @property
    def path(self) -> Path:
        """Where its JSON stands."""
        return FOLDER / f"{self.name}.json"

    @property
    def panels(self) -> list[Panel]:
        """All of them."""
        return [panel for _, panels in self.rows for panel in panels]

    def json(self) -> JsonObject:
        """As Grafana reads it."""
        return {
            "uid": self.name,
            "title": self.title,
            "tags": ["tokenfleet"],
            "schemaVersion": 39,
            "editable": True,
            "refresh": "10s",
            "time": {"from": "now-30m", "to": "now"},
            "templating": {"list": [_source(), *(_variable(*about) for about in self.variables)]},
            "panels": list(self._panels()),
        }

    def _panels(self) -> Iterator[JsonObject]:
        number, top = 0, 0
        for title, panels in self.rows:
            number += 1
            yield {"id": number, "type": "row", "title": title, "gridPos": _place(0, top, WIDTH, 1), "panels": []}
            top, width = top + 1, WIDTH // len(panels)
            height = STAT_HEIGHT if all(panel.kind == "stat" for panel in panels) else HEIGHT
            for column, panel in enumerate(panels):
                number += 1
                yield {"id": number, "gridPos": _place(column * width, top, width, height), **_panel(panel)}
            top += height


def _place(x: int, y: int, width: int, height: int) -> JsonObject:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel) -> JsonObject:
    targets: list[Any] = [
        {"refId": chr(ord("A") + place), "expr": query.expr, "legendFormat": query.legend, "datasource": _SOURCE}
        for place, query in enumerate(panel.queries)
    ]
    defaults: JsonObject = {"unit": panel.unit, "min": 0}
    if panel.kind == "timeseries":
        defaults["custom"] = {"fillOpacity": 8, "showPoints": "never", "spanNulls": False}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.means,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": targets,
    }


def _source() -> JsonObject:
    return {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _variable(name: str, query: str) -> JsonObject:
    """All values at first."""
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
