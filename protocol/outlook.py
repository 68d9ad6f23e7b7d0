"""What a shard's leading dispatcher publishes, in one hash: for people, autoscalers and `tokenfleet explain`."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from protocol import keys
from protocol.call import Arg, Call
from protocol.errors import InvalidRequest
from protocol.handle import Shard
from protocol.messages import Message, Tokens
from protocol.wire import dumps, loads


class Outlook(Message):
    """One dispatcher's view ahead; each field is one of the hash."""

    at_ms: int
    """When, in Redis's time: an old one tells that nobody leads."""
    policy: str
    workers_wanted: Tokens
    """So many active workers would meet the targets with ease."""
    wait_ms: Annotated[float, Field(ge=0)] | None = None
    """How soon an online job that comes now would have its first token; None while no worker takes any."""
    cold_start_s: Annotated[float, Field(ge=0)] | None = None
    """How long workers load before they can serve: the median of the last; None until one was seen."""
    promotion_s: Annotated[float, Field(ge=0)] | None = None
    """How long a standby worker takes to serve; None until one was seen."""
    starts_per_s: Annotated[float, Field(ge=0)] = 0.0
    """How many jobs went to workers lately."""
    observed: tuple[float, ...] = ()
    """The 10th, 50th and 90th percentile of the last first tokens over what was predicted; none until enough came."""
    speeds: dict[str, float] = Field(default_factory=dict)
    """How long the engines of these workers take, over the prediction, where that was learned."""


def publish(shard: Shard, outlook: Outlook) -> Call[int]:
    """Replace what was published; fields that are None keep nothing."""
    fields: list[Arg] = []
    for name, value in outlook.model_dump().items():
        fields += (name, dumps(value))
    return Call(("HSET", keys.fleet(shard), *fields), int)


def published(shard: Shard) -> Call[Outlook | None]:
    """The last outlook; None where none was published, or where it can't be read."""
    return Call(("HGETALL", keys.fleet(shard)), _parse)


def _parse(reply: Mapping[bytes, bytes]) -> Outlook | None:
    try:
        fields: dict[str, Any] = {name.decode(): loads(value) for name, value in reply.items()}
        return Outlook.model_validate(fields)
    except (ValueError, InvalidRequest):
        return None
