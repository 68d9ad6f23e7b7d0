"""W3C's `traceparent`, the name of a span: what a job carries of its caller's trace."""

import re
from typing import Annotated

from pydantic import GetPydanticSchema
from pydantic_core import core_schema

# Version 00, the trace's id, the span's id, flags; no id is all zeros: https://www.w3.org/TR/trace-context/.
_FORM = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z")


def is_traceparent(value: object) -> bool:
    """Whether it names a span."""
    return isinstance(value, str) and bool(_FORM.match(value))


_LIKE_ONE = core_schema.str_schema(strict=True, pattern="^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")
_OR_NONE = core_schema.with_default_schema(_LIKE_ONE, default="", on_error="default")
Trace = Annotated[str, GetPydanticSchema(lambda _source, _handler: _OR_NONE)]
"""What looks like a `traceparent`, or empty. What does not reads as empty: a job is worth more than its trace.

Each role checks it for each job: pydantic itself does so in a tenth of the time that a function of ours takes. It knows
no way to ask for ids that are not all zeros; whoever makes spans does.
"""
