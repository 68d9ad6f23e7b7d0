"""What a user may wish of a batch that is submitted, and the description that comes of it. Pure."""

from collections.abc import Mapping
from typing import Literal, TypedDict, Unpack

from pydantic import ValidationError

from producer import requests
from producer.batch.options import Order, check_priority
from producer.batch.service.glance import DEFAULT
from producer.requests import Duration
from protocol.batches import BatchSpec, checked_metadata
from protocol.errors import InvalidRequest
from protocol.messages import Endpoint
from protocol.states import Priority

DAY_S = 86_400.0
_PLAIN = ("model", "on_invalid", "dedup", "order", "max_errors", "notify")
"""Wishes that are taken as they are."""


class Wishes(TypedDict, total=False):
    """Options of `Batches.submit`; each has a default."""

    model: str | None
    """Run all rows on this model, whatever they name."""
    priority: Priority | str
    """`medium`, the default, or `low` for whenever there is room."""
    deadline: Duration
    """Rows that have not ended so long after now expire; a day by default."""
    metadata: Mapping[str, str]
    """At most 16 pairs; keys of up to 64 characters, values of up to 512."""
    on_invalid: Literal["fail", "skip"]
    """`fail`, the default: one bad line and nothing runs; `skip`: the others run."""
    dedup: bool
    """Run rows with the same body at temperature 0 once."""
    order: Order
    """Of the output's lines: as the rows end, the default, or `input`."""
    max_errors: int | None
    """The batch fails once more rows have."""
    notify: bool
    """Whether its end is told to the runner's webhook; it is by default."""


def described(endpoint: Endpoint | None, **wishes: Unpack[Wishes]) -> BatchSpec:
    """A batch's description, still without its file.

    Raises:
        InvalidRequest: a wish breaks a rule, or there is none of this name.
    """
    if unknown := sorted(wishes.keys() - Wishes.__annotations__.keys()):
        raise InvalidRequest(f"{unknown[0]}: there is no such option", f"Use {', '.join(Wishes.__annotations__)}.")
    window_s = requests.seconds("deadline", wishes.get("deadline", DAY_S), least=1.0)
    priority = check_priority(wishes.get("priority", "medium"))
    metadata = checked_metadata(wishes.get("metadata", {}))
    plain = {name: value for name, value in wishes.items() if name in _PLAIN}
    own = {
        "endpoint_given": endpoint is not None,
        "window_s": window_s,
        "completion_window": _in_words(window_s),
        "priority": priority,
        "metadata": metadata,
    }
    try:
        return BatchSpec.model_validate({"input_file_id": "", "endpoint": endpoint or DEFAULT, **own, **plain})
    except ValidationError as error:
        problem = error.errors()[0]
        raise InvalidRequest(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None


def _in_words(seconds: float) -> str:
    """As a gateway reads it, too."""
    return f"{seconds / 3600:.0f}h" if seconds % 3600 == 0 else f"{f'{seconds:.3f}'.rstrip('0').rstrip('.')}s"
