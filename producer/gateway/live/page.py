"""`GET /fleet`: the page and its parts, as they stand beside this package."""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).parents[1] / "page"
_INDEX = "index.html"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
"""Nothing from elsewhere, no code in attributes or texts, and nobody's frame around it."""


@dataclass(frozen=True, slots=True)
class _Part:
    body: bytes
    tag: str
    type: str


async def page(request: Request) -> Response:
    """The page. It holds nothing of the fleet: everybody may have it."""
    return _answer(request, _INDEX)


async def part(request: Request) -> Response:
    """One of its scripts or styles.

    Raises:
        HTTPException: there is none of this name.
    """
    return _answer(request, request.path_params["name"])


def _answer(request: Request, name: str) -> Response:
    found = _parts().get(name)
    if found is None:
        raise HTTPException(404)
    headers = {
        "etag": found.tag,
        # Asked for again each time, and answered without a body while it is the same.
        "cache-control": "no-cache",
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
    }
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    return Response(found.body, headers=headers, media_type=found.type)


@cache
def _parts() -> dict[str, _Part]:
    """All, read once."""
    found = {}
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in _TYPES:
            body = path.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
            found[path.name] = _Part(body, tag, _TYPES[path.suffix])
    return found
