"""The files of batches, in a folder that producers, runners and a gateway share."""

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, TypeVar

from producer.batch.claim import Claim, Usage, alone
from producer.batch.workplace import Workplace
from protocol import wire
from protocol.batches import BatchName, is_file_id
from protocol.errors import FleetError, InvalidRequest, OutputFailed, SetupError, UnknownFile
from protocol.handle import check_name
from protocol.wire import JsonObject

T = TypeVar("T")
FILES = "files"
"""The folder with one for each tenant."""
BLOCK_BYTES = 1024 * 1024
MOST_NAME = 255
STRAY_S = 86_400.0
"""What a crash has left half-written goes after a day."""
PURPOSES = ("batch", "batch_output")
Purpose = Literal["batch", "batch_output"]
OUTPUTS = ("output", "errors")
"""The parts of what a batch writes."""
_PACKED, _FACTS = ".gz", ".json"


class Source(Protocol):
    """What a file's content is read from."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""
        ...


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a tenant."""

    id: str
    bytes: int
    created_at: int
    """In whole seconds since 1970."""
    filename: str
    purpose: Purpose

    def as_json(self) -> JsonObject:
        """OpenAI's `FileObject`."""
        return {**asdict(self), "object": "file", "status": "processed"}


class FileStore:
    """Files by tenant and id; a tenant's files are unknown to all others. Methods block: call them in a thread.

    A file is there as a whole or not at all: its facts (`<id>.json`) are written last, and deleted first.
    """

    def __init__(self, folder: str | Path, now: Callable[[], float] = time.time) -> None:
        """Use `folder`; what is below it is made when it is needed. `now` tells seconds since 1970."""
        self.folder = Path(folder)
        self._now = now

    def check(self) -> None:
        """Raises where the store has gone since: whoever goes on would make it anew, and find no file in it.

        Raises:
            OutputFailed: it has, as a disk that is not mounted: that leaves an empty folder.
        """
        if not (self.folder / FILES).is_dir():
            raise OutputFailed("the store is not there")

    def put(
        self, tenant: str, source: Source, filename: str, purpose: Purpose = "batch", claim: Claim | None = None
    ) -> StoredFile:
        """Keep all that `source` has, which `claim` may refuse before.

        Raises:
            OutputFailed: it can't be written.
            InvalidRequest: the name is longer than 255 characters, or is no text.
        """
        file_id, size = f"file-{secrets.token_hex(12)}", 0
        target = self._content(tenant, file_id, _checked(filename))
        with self._claimed(tenant, target, claim):
            with _failing("the store can't be written"), self._fresh() as (temporary, writer):
                while block := source.read(BLOCK_BYTES):
                    writer.write(block)
                    size += len(block)
                _safe(writer)
                temporary.rename(target)
            return self._known(tenant, StoredFile(file_id, size, int(self._now()), filename, purpose))

    def adopt(self, name: BatchName, part: str, path: Path) -> str | None:
        """Keep a batch's own file, which stays where it is too; its id, always the same. None for an empty one.

        Repeating it after a crash changes nothing.

        Raises:
            OutputFailed: it can't be written.
        """
        self.check()
        file_id = output_id(name, part)
        if not path.exists() or not (size := path.stat().st_size):
            return None
        filename = f"{name.id}_{part}.jsonl"
        target = self._content(name.tenant, file_id, filename)
        with _failing("the store can't be written"):
            target.unlink(missing_ok=True)
            try:
                os.link(path, target)
            except OSError:  # Some file systems have no links.
                with self._fresh() as (temporary, writer), path.open("rb") as reader:
                    shutil.copyfileobj(reader, writer, BLOCK_BYTES)
                    _safe(writer)
                    temporary.rename(target)
        return self._known(name.tenant, StoredFile(file_id, size, int(self._now()), filename, "batch_output")).id

    def get(self, tenant: str, file_id: str) -> StoredFile:
        """What is known of a file.

        Raises:
            UnknownFile: there is none, or it is another tenant's.
        """
        if is_file_id(file_id):
            with suppress(OSError, ValueError, TypeError, InvalidRequest):
                return StoredFile(**wire.loads(self._facts(tenant, file_id).read_bytes()))
        raise UnknownFile("there is no such file", "It was never put into the store, or was deleted.")

    def path(self, tenant: str, file_id: str) -> Path:
        """Where its content is, for reading; raises as `get`."""
        return self._content(tenant, file_id, self.get(tenant, file_id).filename)

    def list(self, tenant: str) -> "list[StoredFile]":
        """All files of a tenant, the newest first."""
        found = []
        for facts in self._home(tenant).glob(f"*{_FACTS}"):
            with suppress(UnknownFile):  # Deleted since.
                found.append(self.get(tenant, facts.name.removesuffix(_FACTS)))
        return sorted(found, key=lambda file: (file.created_at, file.id), reverse=True)

    def usage(self, tenant: str) -> Usage:
        """What a tenant has here, without what is only half-written; that counts as far as it was claimed."""
        files = size = 0
        with suppress(FileNotFoundError), os.scandir(self._home(tenant)) as entries:
            for entry in entries:
                if not entry.name.endswith(_FACTS):
                    with suppress(FileNotFoundError):  # Deleted since.
                        size += entry.stat().st_size
                        files += 1
        return Usage(files, size)

    def delete(self, tenant: str, file_id: str) -> None:
        """Forget a file; raises as `get`."""
        content = self.path(tenant, file_id)
        with _failing("the store can't be written"):
            self._facts(tenant, file_id).unlink(missing_ok=True)
            content.unlink(missing_ok=True)

    def tenants(self) -> Iterator[str]:
        """All that ever had a file."""
        with suppress(FileNotFoundError):
            yield from sorted(home.name for home in (self.folder / FILES).iterdir() if home.is_dir())

    def workplace(self, name: BatchName) -> Workplace:
        """Where a batch's output grows while it runs."""
        return Workplace(self.folder / "work" / check_name("tenant", name.tenant) / name.id)

    def workplaces(self) -> Iterator[BatchName]:
        """The batches that have one."""
        for place in sorted(self.folder.glob("work/*/*")):
            with suppress(FleetError):
                yield BatchName.of(place.parent.name, place.name)

    def sweep(self) -> int:
        """Delete what a crash has left half-written a day ago; how many files."""
        old, count = self._now() - STRAY_S, 0
        for path in [*self.folder.glob("fresh/*"), *self.folder.glob("files/*/*")]:
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < old and self._is_stray(path):
                    path.unlink()
                    count += 1
        return count

    def _is_stray(self, path: Path) -> bool:
        if path.parent.name == "fresh":
            return True
        return path.suffix != _FACTS and not path.with_name(path.name.removesuffix(_PACKED) + _FACTS).exists()

    def _known(self, tenant: str, file: StoredFile) -> StoredFile:
        with _failing("the store can't be written"), self._fresh() as (temporary, writer):
            writer.write(wire.dumps(asdict(file)))
            _safe(writer)
            temporary.rename(self._facts(tenant, file.id))
        return file

    @contextmanager
    def _claimed(self, tenant: str, target: Path, claim: Claim | None) -> Iterator[None]:
        """A file without content, as large as the one that will be put in its place; gone where none is.

        What a crash leaves of it is swept as what is half-written.
        """
        if claim:
            with alone(self.folder / "locks" / tenant):
                claim.check(self.usage(tenant))
                with _failing("the store can't be written"), target.open("xb") as place:
                    place.truncate(claim.bytes)
        try:
            yield
        except BaseException:
            with suppress(OSError):
                target.unlink(missing_ok=True)
            raise

    @contextmanager
    def _fresh(self) -> Iterator[tuple[Path, BinaryIO]]:
        """A new file on the same disk; it is gone afterwards, unless it was renamed."""
        folder = self.folder / "fresh"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / secrets.token_hex(12)
        try:
            with path.open("xb") as writer:
                yield path, writer
        finally:
            path.unlink(missing_ok=True)

    def _home(self, tenant: str) -> Path:
        return self.folder / FILES / check_name("tenant", tenant)

    def _content(self, tenant: str, file_id: str, filename: str) -> Path:
        home = self._home(tenant)
        with _failing("the store can't be written"):
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The ending says whether what reads it must unpack it.
        return home / (file_id + (_PACKED if filename.endswith(_PACKED) else ""))

    def _facts(self, tenant: str, file_id: str) -> Path:
        return self._home(tenant) / f"{file_id}{_FACTS}"


def output_id(name: BatchName, part: str) -> str:
    """The id of the file with this part of what a batch writes."""
    return f"file-{hashlib.sha256(f'{name.ref}:{part}'.encode()).hexdigest()[:24]}"


def store_at(folder: Path | None) -> FileStore:
    """The store of the setting.

    Raises:
        SetupError: none is set, or there is no such folder: a misspelt one must not come into being.
    """
    if folder is None:
        raise SetupError("no store is set", "Name its folder with --store, TOKENFLEET_STORE or Settings(store=…).")
    if not folder.is_dir():
        raise SetupError(f"the store {folder} is no folder", f"If the name is right, make it: mkdir -p {folder}")
    return FileStore(folder)


def _checked(filename: object) -> str:
    if not isinstance(filename, str) or not 0 < len(filename) <= MOST_NAME or not filename.isprintable():
        raise InvalidRequest(f"filename: a text of 1 to {MOST_NAME} printable characters is required")
    return filename


def _safe(writer: BinaryIO) -> None:
    writer.flush()
    os.fsync(writer.fileno())


@contextmanager
def _failing(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputFailed(f"{what}: {error.strerror}") from None
