"""The store of files: whole or not at all, one tenant's unknown to others, ids that are never paths."""

import io
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from openai.types import FileObject

from producer.batch import claim, workplace
from producer.batch.claim import Claim, Usage
from producer.batch.store import STRAY_S, FileStore
from producer.batch.workplace import Occupied
from protocol.batches import BatchName
from protocol.errors import InvalidId, InvalidRequest, OutputFailed, UnknownFile

NAME = BatchName("t", "batch_1")


class Time:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def store(tmp_path: Path, time: Time) -> FileStore:
    return FileStore(tmp_path / "store", time)


def put(store: FileStore, text: bytes = b"{}\n", tenant: str = "t", filename: str = "in.jsonl") -> str:
    return store.put(tenant, io.BytesIO(text), filename).id


def test_what_is_put_is_there_as_it_was(store: FileStore, time: Time) -> None:
    file = store.put("t", io.BytesIO(b"a\nb"), "in.jsonl")
    assert store.get("t", file.id) == file
    assert store.path("t", file.id).read_bytes() == b"a\nb"
    assert (file.bytes, file.created_at, file.purpose) == (3, int(time.now), "batch")
    assert FileObject.model_validate(file.as_json(), strict=True).id == file.id


def test_a_packed_file_keeps_its_ending(store: FileStore) -> None:
    assert store.path("t", put(store, filename="in.jsonl.gz")).suffix == ".gz"


def test_tenants_do_not_know_each_others_files(store: FileStore) -> None:
    file_id = put(store)
    for look in (store.get, store.path, store.delete):
        with pytest.raises(UnknownFile):
            look("other", file_id)
    assert (store.list("other"), len(store.list("t"))) == ([], 1)
    assert store.path("t", file_id).exists()


@pytest.mark.parametrize("file_id", ["file-../../etc", "../t/file-1", "", "file-", "file-a.json", "file-a/b", 5, None])
def test_an_id_is_no_path(store: FileStore, file_id: str) -> None:
    with pytest.raises(UnknownFile):
        store.get("t", file_id)


@pytest.mark.parametrize("tenant", ["../t", "", "T", "a/b"])
def test_a_tenant_is_no_path(store: FileStore, tenant: str) -> None:
    with pytest.raises(InvalidId):
        put(store, tenant=tenant)


@pytest.mark.parametrize("filename", ["", "x" * 256, "a\nb"])
def test_a_name_is_bounded(store: FileStore, filename: str) -> None:
    with pytest.raises(InvalidRequest):
        put(store, filename=filename)


def test_the_newest_is_listed_first(store: FileStore, time: Time) -> None:
    first = put(store)
    time.now += 1
    second = put(store)
    assert [file.id for file in store.list("t")] == [second, first]


def test_a_source_that_breaks_off_leaves_nothing(store: FileStore) -> None:
    class Broken(io.BytesIO):
        def read(self, *_: object) -> bytes:
            raise OSError(5, "gone")

    with pytest.raises(OutputFailed):
        store.put("t", Broken(), "in.jsonl")
    assert [path for path in store.folder.rglob("*") if path.is_file()] == []


def test_of_files_that_come_together_as_many_are_kept_as_there_is_room_for(store: FileStore) -> None:
    def check(used: Usage) -> None:
        if used.bytes + 30 > 100:
            raise OutputFailed("full")

    def keep(_: int) -> bool:
        try:
            store.put("t", io.BytesIO(b"x" * 30), "in.jsonl", claim=Claim(30, check))
        except OutputFailed:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(keep, range(24))) == 3
    assert store.usage("t") == Usage(3, 90)


def test_who_stands_still_with_the_lock_holds_up_others_only_for_a_while(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "PATIENCE_S", 0.05)
    asked = Claim(3, lambda _: None)
    with claim.alone(store.folder / "locks" / "t"), pytest.raises(OutputFailed, match="another process"):
        store.put("t", io.BytesIO(b"{}\n"), "in.jsonl", claim=asked)
    assert store.put("t", io.BytesIO(b"{}\n"), "in.jsonl", claim=asked).bytes == 3


def test_deleting_leaves_nothing(store: FileStore) -> None:
    store.delete("t", put(store))
    assert [path for path in store.folder.rglob("*") if path.is_file()] == []


def test_only_what_a_crash_left_is_swept_and_only_after_a_day(store: FileStore, time: Time) -> None:
    kept = put(store)
    packed = put(store, filename="in.jsonl.gz")
    half = [store.folder / "fresh" / "a", store.path("t", kept).with_name("file-half")]
    for path in half:
        path.write_bytes(b"half")
    for path in store.folder.rglob("*"):
        os.utime(path, (time.now, time.now))
    time.now += STRAY_S - 1
    assert store.sweep() == 0
    time.now += 2
    assert store.sweep() == 2
    assert not any(path.exists() for path in half)
    assert {file.id for file in store.list("t")} == {kept, packed}
    assert store.path("t", packed).exists()


def test_a_batch_s_own_file_gets_the_same_id_each_time(store: FileStore) -> None:
    put(store)
    place = store.workplace(NAME)
    with place.held():
        assert store.adopt(NAME, "output", place.output) is None
        place.output.write_bytes(b"")
        assert store.adopt(NAME, "output", place.output) is None
        place.output.write_bytes(b"line\n")
        ids = {store.adopt(NAME, "output", place.output) for _ in range(3)}
    (file_id,) = ids
    assert file_id
    assert store.adopt(NAME, "errors", place.output) not in ids
    place.clear()
    assert store.path("t", file_id).read_bytes() == b"line\n"
    assert list(store.workplaces()) == []


def test_without_links_it_is_copied(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(1, "no links here")

    monkeypatch.setattr("os.link", refused)
    put(store)
    place = store.workplace(NAME)
    with place.held():
        place.output.write_bytes(b"line\n")
        file_id = store.adopt(NAME, "output", place.output)
    assert file_id
    assert store.path("t", file_id).read_bytes() == b"line\n"


def test_one_process_holds_a_workplace(store: FileStore) -> None:
    with store.workplace(NAME).held(), pytest.raises(Occupied), store.workplace(NAME).held():
        pass
    with store.workplace(NAME).held():
        assert list(store.workplaces()) == [NAME]


def test_a_torn_line_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    assert list(workplace.whole_lines(path)) == []
    path.write_bytes(b"one\ntwo\nthr")
    assert list(workplace.whole_lines(path)) == [b"one\n", b"two\n"]
    assert list(workplace.whole_lines(path, 4)) == [b"two\n"]
