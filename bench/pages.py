"""Write what is made from the code: pages of docs/, and Grafana's dashboards."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench import events_page, metrics_page
from bench.dashboards.grafana import Dashboard
from bench.dashboards.spec import DASHBOARDS


def _dashboard(board: Dashboard) -> str:
    return json.dumps(board.json(), indent=1) + "\n"


PAGES: dict[Path, Callable[[], str]] = {
    events_page.PAGE: events_page.page,
    metrics_page.PAGE: metrics_page.page,
    **{board.path: partial(_dashboard, board) for board in DASHBOARDS},
}


if __name__ == "__main__":
    for path, page in PAGES.items():
        path.write_text(page(), encoding="utf-8")
