"""What a role answers Prometheus, read by Prometheus's own parser."""

from urllib.request import urlopen

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    """The series of one moment; `asked` is told which metrics are."""

    def __init__(self, port: int, asked: set[str] | None = None) -> None:
        self._asked = set() if asked is None else asked
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            self._families = list(text_string_to_metric_families(answer.read().decode()))

    def sum(self, name: str, **labels: str) -> float:
        """Over all series of that name with these labels; at least one must be there."""
        found = [
            (sample.value, _name(family))
            for family in self._families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert found, f"no {name} with {labels}"
        self._asked.update(family for _, family in found)
        return sum(value for value, _ in found)

    def has(self, name: str) -> bool:
        """Whether there is any series of that name."""
        return any(sample.name == name for family in self._families for sample in family.samples)

    def buckets(self, name: str, **labels: str) -> float:
        """The histogram's last bucket: all that it counts."""
        return self.sum(f"{name}_bucket", le="+Inf", **labels)

    @property
    def own(self) -> set[str]:
        """The names of our metrics, as the page has them."""
        own = [family for family in self._families if family.name.startswith(("tokenfleet_", "DCGM_"))]
        return set(map(_name, own))


def _name(family: Metric) -> str:
    return family.name + ("_total" if family.type == "counter" else "")
