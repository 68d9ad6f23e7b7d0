"""Lists that come a page at a time, as OpenAI's clients turn them."""

from collections.abc import Sequence

from starlette.requests import Request

from producer.gateway.state import checked_id
from protocol.errors import InvalidRequest
from protocol.wire import JsonObject


def limit_of(request: Request, default: int, most: int) -> int:
    """How many the request wants at most.

    Raises:
        InvalidRequest: no number from 1 to `most`.
    """
    text = request.query_params.get("limit", str(default))
    # Longer ones are no numbers that anybody means, and slow to read.
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= most):
        raise InvalidRequest(f"limit: a number from 1 to {most} is required")
    return int(text)


def after_of(request: Request) -> str:
    """The id of the last one that the client has; empty at the beginning.

    Raises:
        InvalidId: nothing can have this id.
    """
    after = request.query_params.get("after", "")
    return checked_id(after, "after") if after else ""


def page(found: Sequence[JsonObject], limit: int) -> JsonObject:
    """The first `limit`; that there are more says that the list goes on."""
    shown = list(found[:limit])
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": len(found) > limit,
    }
