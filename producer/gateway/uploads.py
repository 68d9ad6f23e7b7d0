"""A file that a request brings as a form, within bounds of size and time."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import BinaryIO

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from producer.gateway.failures import SlowBody, UnsupportedMedia
from protocol.errors import InvalidRequest, OutputFailed, TooLarge

FORM = "multipart/form-data"
FORM_BYTES = 64 * 1024
"""What a form may have around its file."""
MOST_FIELDS = 20


@dataclass(frozen=True, slots=True)
class Upload:
    """A file for batches, as it came."""

    file: BinaryIO
    filename: str
    size: int
    """In bytes."""


@asynccontextmanager
async def uploaded(request: Request, max_bytes: int, piece_s: float) -> AsyncIterator[Upload]:
    """The form's file, on disk where it is large; gone after the block.

    Raises:
        UnsupportedMedia: it is no form, or an encoded one.
        TooLarge: it has over `max_bytes` bytes.
        SlowBody: nothing came for `piece_s` seconds.
        InvalidRequest: the form is broken, lacks a field, or has one that there is not.
        OutputFailed: the disk is full.
        ClientDisconnect: the client left in the middle of it.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != FORM:
        raise UnsupportedMedia(f"content-type: {FORM} is required")
    if request.headers.get("content-encoding", "identity").strip().lower() not in ("identity", ""):
        raise UnsupportedMedia("content-encoding: none is required; send a file that ends in .gz")
    pieces = _bounded(request, max_bytes + FORM_BYTES, piece_s)
    try:
        form = await MultiPartParser(request.headers, pieces, max_files=1, max_fields=MOST_FIELDS).parse()
    except ValueError:
        # A form may name any of Python's codecs.
        raise InvalidRequest("no form can be read: what it says is no text") from None
    except MultiPartException as error:
        raise InvalidRequest(f"no form can be read: {error.message}") from None
    except OSError as error:
        raise OutputFailed(f"the file can't be kept: {error.strerror}") from None
    try:
        yield _checked(form)
    finally:
        await form.close()


KEPT = "Files stay for as long as the batch runners keep the batches that use them; delete what should go sooner."


def _checked(form: FormData) -> Upload:
    if form.keys() - {"file", "purpose"}:
        raise InvalidRequest("the form has another field than `file` and `purpose`", KEPT)
    if form.getlist("purpose") != ["batch"]:
        raise InvalidRequest("purpose: `batch` is required")
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise InvalidRequest("file: a file is required")
    return Upload(file.file, file.filename or "input.jsonl", file.size or 0)


def declared_bytes(request: Request) -> int:
    """What the form's file has at least, as its head says; 0 where that says nothing."""
    declared = request.headers.get("content-length", "")
    return max(0, int(declared) - FORM_BYTES) if declared.isdecimal() else 0


async def _bounded(request: Request, max_bytes: int, piece_s: float) -> AsyncGenerator[bytes, None]:
    if declared_bytes(request) > max_bytes - FORM_BYTES:
        raise _too_large(max_bytes)
    pieces, size = request.stream(), 0
    while True:
        try:
            async with asyncio.timeout(piece_s):
                piece = await anext(pieces, None)
        except TimeoutError:
            raise SlowBody(f"nothing of the file came for {piece_s:g} s") from None
        if piece is None:
            return
        size += len(piece)
        if size > max_bytes:
            raise _too_large(max_bytes)
        yield piece


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"file: it has over {max_bytes - FORM_BYTES} bytes")
