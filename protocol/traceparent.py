"""W3C's `traceparent`, the name of a span: what a job carries of its caller's trace."""

import re
from typing import Annotated

from pydantic import BeforeValidator

# Version 00, the trace's id, the span's id, flags; no id is all zeros: https://www.w3.org/TR/trace-context/.
_FORM = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z")


def is_traceparent(value: object) -> bool:
    """Whether it names a span."""
    return isinstance(value, str) and bool(_FORM.match(value))


def _known(value: object) -> str:
    return value if isinstance(value, str) and is_traceparent(value) else ""


Trace = Annotated[str, BeforeValidator(_known)]
"""A `traceparent`, or empty. What is none reads as empty: a job is worth more than its trace."""
