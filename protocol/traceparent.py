"""W3C's `traceparent`, the name of a span: what a job carries of its caller's trace."""

import re
from typing import Annotated

from pydantic import GetPydanticSchema
from pydantic_core import core_schema


def _id(digits: int) -> str:
    """Not all zeros: so many of them, then another digit, then any. Pydantic's own patterns know no shorter way."""
    ways = (f"0{{{zeros}}}[1-9a-f][0-9a-f]{{{digits - zeros - 1}}}" for zeros in range(digits))
    return f"(?:{'|'.join(ways)})"


# Version 00, the trace's id, the span's id, flags: https://www.w3.org/TR/trace-context/.
_FORM = f"00-{_id(32)}-{_id(16)}-[0-9a-f]{{2}}"


def is_traceparent(value: object) -> bool:
    """Whether it names a span."""
    return isinstance(value, str) and bool(re.fullmatch(_FORM, value))


_NAMED = core_schema.str_schema(strict=True, pattern=f"^{_FORM}$")
_OR_NONE = core_schema.with_default_schema(_NAMED, default="", on_error="default")
Trace = Annotated[str, GetPydanticSchema(lambda _source, _handler: _OR_NONE)]
"""A `traceparent`, or empty. What is none reads as empty: a job is worth more than its trace.

Pydantic itself checks it, each role for each job, in a third of the time that a function of ours takes.
"""
