"""`/v1/files`: the input and output of batches, in the store that the batch runners have too."""

import asyncio
from contextlib import suppress
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from producer.batch.claim import Claim, Usage
from producer.batch.service.inputs import check_unused
from producer.batch.store import PURPOSES, FileStore, StoredFile, store_at
from producer.gateway.answers import answered
from producer.gateway.auth import Grant
from producer.gateway.failures import FilesFull, closing_down
from producer.gateway.paging import after_of, limit_of, page
from producer.gateway.state import Gateway, checked_id, gateway_of
from producer.gateway.stays import Ended
from producer.gateway.uploads import Upload, declared_bytes, uploaded
from protocol.errors import InvalidRequest, UnknownFile
from protocol.wire import JsonObject

MOST_LISTED = 10_000
MOST_FILES = 20_000
"""Of a tenant, however small: all are looked at for each upload and for each list."""


async def all_files(request: Request) -> Response:
    """`POST /v1/files` and `GET /v1/files`: put a file into the store; those that are there, the newest first.

    Raises:
        FleetError: it is refused, or there is no store.
        ClientDisconnect: the client left before the file was complete.
    """
    return await (_put if request.method == "POST" else _list)(request)


async def one_file(request: Request) -> Response:
    """`GET /v1/files/{id}` and `DELETE /v1/files/{id}`.

    Raises:
        FleetError: it is not there, or not this key's; or it would be deleted under a batch that has not ended.
    """
    grant, store = await _asked(request)
    file_id = checked_id(request.path_params["id"])
    if request.method != "DELETE":
        return answered((await asyncio.to_thread(store.get, grant.tenant, file_id)).as_json())
    await check_unused(gateway_of(request).fleet.redis, grant.tenant, file_id)
    await asyncio.to_thread(store.delete, grant.tenant, file_id)
    return answered({"id": file_id, "object": "file", "deleted": True})


async def content(request: Request) -> Response:
    """`GET /v1/files/{id}/content`: its bytes, as they were put there or written.

    Raises:
        FleetError: as `one_file`.
    """
    grant, store = await _asked(request)
    gateway_of(request).check_open()
    path = await asyncio.to_thread(store.path, grant.tenant, checked_id(request.path_params["id"]))
    return _Download(gateway_of(request), path, media_type="application/octet-stream")


class _Download(FileResponse):
    """A file on its way out; a gateway that closes waits for it, and breaks it off in the end."""

    def __init__(self, gateway: Gateway, path: Path, *, media_type: str) -> None:
        super().__init__(path, media_type=media_type)
        self._stays = gateway.stays

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(Ended):
            async with self._stays.of_file():
                await super().__call__(scope, receive, send)


async def _put(request: Request) -> Response:
    grant, store = await _asked(request)
    gateway = gateway_of(request)
    gateway.check_open()
    options, tenant = gateway.options, grant.tenant
    used = await asyncio.to_thread(store.usage, tenant)
    _check_room(used, tenant, declared_bytes(request), options.stored_bytes)
    try:
        with gateway.uploads.one(f"{tenant}:{grant.key_id}", "uploads"):
            async with gateway.stays.of_file(), uploaded(request, options.file_bytes, options.body_s) as upload:
                return answered(await asyncio.to_thread(_kept, store, tenant, upload, options.stored_bytes))
    except Ended:
        raise closing_down() from None


def _kept(store: FileStore, tenant: str, upload: Upload, most_bytes: int) -> JsonObject:
    claim = Claim(upload.size, lambda used: _check_room(used, tenant, upload.size, most_bytes))
    return store.put(tenant, upload.file, upload.filename, claim=claim).as_json()


def _check_room(used: Usage, tenant: str, size: int, most_bytes: int) -> None:
    """Looked at before a file comes, and again once its size is known.

    Raises:
        FilesFull: with it, the tenant would have more than it may.
    """
    if used.files >= MOST_FILES or (most_bytes and used.bytes + size > most_bytes):
        told = (
            f"the files of tenant {tenant} may be {MOST_FILES}, and have {most_bytes or 'any number of'} bytes in all"
        )
        raise FilesFull(told, f"There are {used.files} with {used.bytes} bytes; delete those that are done with.")


async def _list(request: Request) -> Response:
    grant, store = await _asked(request)
    limit, asked = limit_of(request, MOST_LISTED, MOST_LISTED), request.query_params
    if (purpose := asked.get("purpose", "")) not in ("", *PURPOSES):
        raise InvalidRequest(f"purpose: one of {', '.join(PURPOSES)} is required")
    if (order := asked.get("order", "desc")) not in ("asc", "desc"):
        raise InvalidRequest("order: asc or desc is required")
    found = await asyncio.to_thread(store.list, grant.tenant)
    found = found if order == "desc" else found[::-1]
    shown = [file for file in _behind(found, after_of(request)) if purpose in ("", file.purpose)]
    return answered(page([file.as_json() for file in shown[: limit + 1]], limit))


def _behind(files: list[StoredFile], after: str) -> list[StoredFile]:
    if not after:
        return files
    places = [place for place, file in enumerate(files) if file.id == after]
    if not places:
        raise UnknownFile("there is no such file to list from")
    return files[places[0] + 1 :]


async def _asked(request: Request) -> tuple[Grant, FileStore]:
    gateway = gateway_of(request)
    grant = await gateway.admit(request)
    return grant, store_at(gateway.fleet.settings.store)
