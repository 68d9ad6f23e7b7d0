"""`tokenfleet batch submit`, `list`, `show`, `watch`, `cancel`, `results`, `delete` on a real server."""

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from click.testing import Result as Ran
from openai.types import Batch
from redis import Redis

from producer.batch.service.owner import Terms
from producer.batch.service.serve import serve
from producer.batch.store import FileStore
from producer.fleet import Fleet
from protocol import keys
from protocol.batches import BatchName, BatchStatus
from protocol.settings import Settings
from tests.producer.batch_files import row
from tests.producer.tiny import TinyWorker, serving
from tests.support.servers import Server
from tokenfleet import terminal
from tokenfleet.cli import main as cli
from tokenfleet.cli.batch import watch
from tokenfleet.cli.exits import Exit


@pytest.fixture
def store(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileStore:
    monkeypatch.setenv("TOKENFLEET_REDIS_URL", valkey_url)
    (tmp_path / "store").mkdir()
    monkeypatch.setenv("TOKENFLEET_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("COLUMNS", "200")
    return FileStore(tmp_path / "store")


def ran(*arguments: str, stdin: str = "") -> Ran:
    return CliRunner().invoke(cli, ["batch", *arguments], input=stdin)


def said(*arguments: str, stdin: str = "", code: int = 0) -> str:
    result = ran(*arguments, stdin=stdin)
    assert result.exit_code == code, result.output
    return result.stdout


def as_openai(*arguments: str, code: int = 0) -> list[Batch]:
    """What it prints with --json: OpenAI's own objects, one a line."""
    lines = said(*arguments, "--json", code=code).splitlines()
    return [Batch.model_validate(json.loads(line), strict=True) for line in lines]


def refused(*arguments: str) -> tuple[int, str]:
    result = ran(*arguments, "--json")
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])["error"]["code"]


def submitted(tmp_path: Path, *rows: str, options: Sequence[str] = ()) -> str:
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(rows))
    return said("submit", "-i", str(source), *options).strip()


def run_it(url: str, store: FileStore, batch_id: str) -> None:
    """What a batch runner does."""

    async def work() -> None:
        async with Fleet(url) as fleet, serving(TinyWorker(fleet.redis)):
            await serve(fleet, store, BatchName("default", batch_id), Terms())

    asyncio.run(work())


def test_from_submit_to_delete(valkey_url: str, store: FileStore, tmp_path: Path) -> None:
    batch_id = submitted(tmp_path, row("a", "say a"), row("b", "say b"), options=["--order", "input"])
    assert "validating" in said("show", batch_id)
    assert batch_id in said("list")
    run_it(valkey_url, store, batch_id)
    ended = r"completed: rows 2/2, 0 failed, [\d,.]+ rows/s, [\d,]+ tokens/s, [\d.]+ \w+; \d+ tokens in, \d+ out\n"
    assert re.fullmatch(ended, said("watch", batch_id))
    assert "completed" in said("show", batch_id)
    lines = [json.loads(line) for line in said("results", batch_id).splitlines()]
    assert [line["custom_id"] for line in lines] == ["a", "b"]
    target = tmp_path / "out.jsonl"
    told = json.loads(said("results", batch_id, "-o", str(target), "--json"))
    assert told == {"id": batch_id, "status": "completed", "lines": 2}
    assert target.read_text() == said("results", batch_id)
    assert said("delete", batch_id) == "deleted\n"
    assert refused("show", batch_id) == (Exit.INVALID, "unknown_batch")
    assert store.list("default") == []


def test_json_is_openais(valkey_url: str, store: FileStore, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(row("a", "say a"))
    options = ["--metadata", "team=a=b", "--deadline", "6h", "--priority", "low"]
    (batch,) = as_openai("submit", "-i", str(source), *options)
    assert (batch.metadata, batch.completion_window) == ({"team": "a=b"}, "6h")
    assert batch.expires_at == batch.created_at + 6 * 3600
    assert as_openai("list") == as_openai("show", batch.id) == [batch]
    run_it(valkey_url, store, batch.id)
    assert as_openai("watch", batch.id)[-1].status == "completed"
    assert json.loads(said("delete", batch.id, "--json")) == {"id": batch.id, "deleted": True}


def test_failed_rows_and_bad_files_end_with_3(valkey_url: str, store: FileStore, tmp_path: Path) -> None:
    some = submitted(tmp_path, row("a", "refuse 400"), row("b", "say b"))
    run_it(valkey_url, store, some)
    assert "1 failed" in said("watch", some, code=3)
    assert len(said("results", some, code=3).splitlines()) == 2
    assert said("show", some)
    bad = submitted(tmp_path, row("a"), "no json", "[]")
    run_it(valkey_url, store, bad)
    shown = said("show", bad)
    assert "line 2: invalid_json_line" in shown
    assert "line 3: invalid_json_line" in shown
    assert "line 2: invalid_json_line" in said("watch", bad, code=3)
    target = tmp_path / "nothing.jsonl"
    result = ran("results", bad, "-o", str(target))
    assert (result.exit_code, target.read_bytes()) == (Exit.FAILED, b"")
    assert result.stderr.startswith("no line is there: the batch is failed: ")
    assert "line 2: invalid_json_line" in result.stderr


def test_a_list_is_whole_at_80_columns(store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch_id = submitted(tmp_path, row("a"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(terminal, "stdout_is_terminal", lambda: True)
    _, line = said("list", "--store", str(store.folder)).splitlines()
    assert line.split()[0] == batch_id
    assert line.split()[3] == "validating"


def test_a_row_is_one_line_where_no_terminal_is(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = "a-model-with-a-long-name" * 10
    ids = [submitted(tmp_path, row("a"), options=["--model", model]) for _ in range(2)]
    monkeypatch.setenv("COLUMNS", "80")
    _, *lines = said("list", "--store", str(store.folder)).splitlines()
    assert [line.split()[0] for line in lines] == ids[::-1]
    assert [line.split()[-1] for line in lines] == [model, model]
    monkeypatch.setattr(terminal, "stdout_is_terminal", lambda: True)
    assert len(said("list", "--store", str(store.folder)).splitlines()) > 3


def test_who_waits_hears_that_no_runner_is_there(store: FileStore, valkey_url: str, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(row("a", "say a"))
    result = ran("submit", "-i", str(source))
    assert "no batch runner is there" in result.stderr
    batch_id = result.stdout.strip()
    assert "no batch runner is there" in ran("show", batch_id).stderr
    with Redis.from_url(valkey_url) as redis:
        redis.set(keys.RUNNER_SIGN, "")
        assert ran("show", batch_id).stderr == ""
        redis.delete(keys.RUNNER_SIGN)
    run_it(valkey_url, store, batch_id)
    assert ran("show", batch_id).stderr == ""


def test_cancelling(valkey_url: str, store: FileStore, tmp_path: Path) -> None:
    batch_id = submitted(tmp_path, row("a"), row("b"))
    assert said("cancel", batch_id) == f"{batch_id} is cancelling\n"
    assert refused("delete", batch_id) == (Exit.INVALID, "batch_active")
    assert refused("results", batch_id) == (Exit.INVALID, "batch_active")
    assert said("results", batch_id, "--partial") == ""
    run_it(valkey_url, store, batch_id)
    assert as_openai("cancel", batch_id)[0].status == "cancelled"
    assert len(said("results", batch_id, code=3).splitlines()) == 2


def test_stdin_and_stored_files(store: FileStore, valkey_url: str) -> None:
    first = said("submit", "-i", "-", stdin=row("a", "say a")).strip()
    (file,) = store.list("default")
    second = said("submit", "-i", file.id).strip()
    assert len(store.list("default")) == 1
    for batch_id in (first, second):
        run_it(valkey_url, store, batch_id)
        assert json.loads(said("results", batch_id))["custom_id"] == "a"


def test_what_is_refused(store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(row("a"))
    for word in ("show", "watch", "cancel", "results", "delete"):
        assert refused(word, "batch_none") == (Exit.INVALID, "unknown_batch")
        assert refused(word, "../else") == (Exit.INVALID, "unknown_batch")
    assert refused("submit", "-i", str(tmp_path / "none")) == (Exit.INVALID, "setup_error")
    assert refused("submit", "-i", str(source), "--metadata", "nothing") == (Exit.INVALID, "invalid_request")
    assert refused("submit", "-i", "file-none") == (Exit.INVALID, "unknown_file")
    monkeypatch.delenv("TOKENFLEET_STORE")
    assert refused("submit", "-i", str(source)) == (Exit.INVALID, "setup_error")
    assert said("list") == "no batch was submitted\n"


def test_without_redis_it_ends_with_4(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENFLEET_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("TOKENFLEET_REDIS_PATIENCE_S", "0")
    for word in ("show", "watch", "cancel", "results", "delete"):
        assert refused(word, "batch_none") == (Exit.UNAVAILABLE, "store_unavailable")


def test_a_runner_without_redis_says_where_it_looked(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENFLEET_REDIS_URL", "redis://me:secret@127.0.0.1:1/0")
    monkeypatch.setenv("TOKENFLEET_REDIS_PATIENCE_S", "0")
    result = CliRunner().invoke(cli, ["batch-runner"])
    assert result.exit_code == Exit.UNAVAILABLE
    assert "error: no Redis answers at redis://127.0.0.1:1/0" in result.stderr
    assert "secret" not in result.output


def test_a_full_disk_of_the_store_ends_with_4(store: FileStore, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(row("a"))
    (store.folder / "fresh").write_text("no folder can be made here")
    assert refused("submit", "-i", str(source)) == (Exit.UNAVAILABLE, "output_failed")


def test_a_misspelt_store_is_not_made(store: FileStore, tmp_path: Path) -> None:
    source, other = tmp_path / "in.jsonl", tmp_path / "stroe"
    source.write_text(row("a"))
    for result in (
        ran("submit", "-i", str(source), "--store", str(other)),
        CliRunner().invoke(cli, ["batch-runner", "--store", str(other)]),
    ):
        assert (result.exit_code, "mkdir -p" in result.stderr, other.exists()) == (Exit.INVALID, True, False)


def test_the_runner_needs_a_store_and_a_sound_secret(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def runner() -> tuple[int, str]:
        result = CliRunner().invoke(cli, ["batch-runner", "--concurrency", "1"])
        return result.exit_code, result.output

    monkeypatch.setenv("TOKENFLEET_WEBHOOK_SECRET", "whsec_!!")
    code, told = runner()
    assert (code, "webhook's secret" in told, "!!" in told) == (Exit.INVALID, True, False)
    monkeypatch.delenv("TOKENFLEET_STORE")
    code, told = runner()
    assert (code, "no store is set" in told) == (Exit.INVALID, True)


async def test_watching_begins_when_redis_is_back(server: Server, tmp_path: Path) -> None:
    """What it asks first of all is as patient as the rest."""
    store, source = FileStore(tmp_path), tmp_path / "in.jsonl"
    source.write_text(row("a", "say a"))
    settings = Settings(redis_url=server.url, store=tmp_path, redis_patience_s=20)
    async with Fleet(settings=settings) as fleet:
        name = (await fleet.batches.submit(source)).name
        await fleet.batches.cancel(name.id)
        await serve(fleet, store, name, Terms())
        server.kill(written=True)
        with click.Context(watch.command):
            watching = asyncio.create_task(watch._watch(fleet, name.id))
            ended, _ = await asyncio.wait({watching}, timeout=0.3)
            assert not ended
            server.start()
            assert (await watching).status is BatchStatus.CANCELLED
