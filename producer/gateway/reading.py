"""A request's body, within bounds of size and time."""

import asyncio
import zlib
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request

from producer.gateway.failures import SlowBody, UnsupportedMedia
from protocol import wire
from protocol.errors import InvalidJson, TooLarge
from protocol.wire import JsonObject

JSON = "application/json"
_GZIP = 16 + zlib.MAX_WBITS
"""zlib's way to say: with gzip's header."""
_PUNCTUATION = (b"{", b"}", b"[", b"]", b",", b":")
"""Each is a byte in whatever way JSON is written. Reading millions of empty lists holds up all other requests."""


def raw_limit(max_body_bytes: int) -> int:
    """Bytes that a body may have as it comes: each of its characters may be written as six."""
    return 6 * max_body_bytes + 64 * 1024


async def read_object(request: Request, max_bytes: int, timeout_s: float) -> JsonObject:
    """Read the JSON object that the request brings, plain or gzipped.

    Raises:
        UnsupportedMedia: it says that it is something else.
        TooLarge: it has over `max_bytes` bytes however it is written, or over `raw_limit` as it is, packed or not.
        SlowBody: it has not come within `timeout_s` seconds.
        InvalidJson: it is no JSON object.
        ClientDisconnect: the client left in the middle of it.
    """
    kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if kind != JSON:
        raise UnsupportedMedia(f"content-type: {JSON} is required")
    try:
        async with asyncio.timeout(timeout_s):
            data = await _gathered(request, raw_limit(max_bytes))
    except TimeoutError:
        raise SlowBody(f"the request's body did not come within {timeout_s:g} s") from None
    if sum(map(data.count, _PUNCTUATION)) > max_bytes:
        raise _too_large(max_bytes)
    value = wire.loads_of_user(data)
    if not isinstance(value, dict):
        raise InvalidJson("not valid JSON: an object is required")
    return value


async def _gathered(request: Request, max_bytes: int) -> bytes:
    data = bytearray()
    async for piece in _unpacked(request, max_bytes):
        data += piece
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
    return bytes(data)


async def _unpacked(request: Request, max_bytes: int) -> AsyncIterator[bytes]:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    match request.headers.get("content-encoding", "identity").strip().lower():
        case "identity" | "":
            async for piece in request.stream():
                yield piece
        case "gzip":
            async for piece in _gunzipped(request, max_bytes):
                yield piece
        case _:
            raise UnsupportedMedia("content-encoding: gzip or none is required")


async def _gunzipped(request: Request, max_bytes: int) -> AsyncIterator[bytes]:
    packed, size = zlib.decompressobj(wbits=_GZIP), 0
    try:
        async for piece in request.stream():
            size += len(piece)
            if size > max_bytes:
                raise _too_large(max_bytes)
            # One byte more than allowed shows that it is too large, however much would follow.
            yield packed.decompress(piece, max_bytes + 1)
            if packed.unused_data:
                raise InvalidJson("not valid JSON: something follows the gzipped body")
    except zlib.error:
        raise InvalidJson("not valid JSON: the body is no gzip file") from None
    if not packed.eof:
        raise InvalidJson("not valid JSON: the gzipped body breaks off")


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"the request's body has over {max_bytes} bytes")


__all__ = ["ClientDisconnect", "read_object"]
