"""TLS to a real server: what is trusted, and what is refused in one line that says what to do."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from redis import Redis
from redis.exceptions import ConnectionError as NoConnection

from producer.fleet import Fleet
from protocol import store, tls
from protocol.call import Call, run
from protocol.errors import NotTrusted, SetupError, StoreUnavailable
from protocol.settings import Settings
from protocol.states import State
from tests.access.certificates import HOST, Certificates
from tests.access.conftest import real_binary
from tests.access.distrust import both
from tests.journey.conftest import MODEL, scheduler, worker
from tests.support.servers import Server, free_port
from tokenfleet.cli import main as cli

PING = Call(("PING",), bool)
Start = Callable[..., "TlsServer"]


class TlsServer(Server):
    """It has a TLS port beside its plain one, which only the test itself uses."""

    def __init__(self, binary: Path, folder: Path, files: Certificates, name: str, *, clients: bool) -> None:
        self.tls_port = free_port()
        flags = ["--tls-port", str(self.tls_port), "--tls-cert-file", str(files.pem(name))]
        flags += ["--tls-key-file", str(files.key(name)), "--tls-ca-cert-file", str(files.pem("ca"))]
        super().__init__(binary, folder, extra=[*flags, "--tls-auth-clients", "yes" if clients else "no"])
        self._files = files

    @property
    def tls_url(self) -> str:
        return f"rediss://{HOST}:{self.tls_port}/0"

    def settings(self, **changes: Path | str | None) -> Settings:
        plain = Settings(redis_url=self.tls_url, redis_ca=self._files.pem("ca"), redis_patience_s=5)
        return plain.model_copy(update=changes)


@pytest.fixture
def start(certificates: Certificates, tmp_path: Path) -> Iterator[Start]:
    binary = real_binary("redis7")  # the packaged Valkey has no TLS
    started: list[TlsServer] = []

    def begin(name: str = "good", *, clients: bool = False) -> TlsServer:
        server = TlsServer(binary, tmp_path, certificates, name, clients=clients)
        server.start()
        started.append(server)
        return server

    yield begin
    for server in started:
        server.stop()


def cut_off(writer: asyncio.StreamWriter) -> None:
    """With a reset, not with an end."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def test_a_fleet_runs_over_tls_with_certificates_on_both_sides(start: Start, certificates: Certificates) -> None:
    server = start(clients=True)
    settings = server.settings(redis_cert=certificates.pem("client"), redis_key=certificates.key("client"))
    url = settings.store_url
    async with scheduler(url), worker(url, "worker-1"), Fleet(settings=settings) as fleet:
        await fleet.ready(MODEL, 20)
        job = await fleet.submit(model=MODEL, prompt="hello", stream=True, max_tokens=5)
        assert "".join([text async for text in job.text()]) == (await job.result(timeout=20)).text
        assert (await job.result()).state is State.COMPLETED


@pytest.mark.parametrize(
    ("name", "told", "hint"),
    [
        ("elsewhere", "for another host", "host name that stands in it"),
        ("expired", "has expired", "Renew it"),
        ("early", "not valid yet", "clock"),
        ("foreign", "a CA that is not known", "TOKENFLEET_REDIS_CA"),
    ],
)
async def test_a_bad_certificate_is_refused(start: Start, name: str, told: str, hint: str) -> None:
    for error in await both(start(name).settings()):
        assert told in error.message
        assert hint in error.hint
        assert "\n" not in str(error)


async def test_without_the_cas_certificate_nothing_is_trusted(start: Start) -> None:
    for error in await both(start().settings(redis_ca=None)):
        assert "TOKENFLEET_REDIS_CA" in error.hint


async def test_a_missing_or_foreign_client_certificate_is_told(start: Start, certificates: Certificates) -> None:
    server = start(clients=True)
    for error in await both(server.settings()):
        assert "TOKENFLEET_REDIS_CERT" in error.hint
    foreign = server.settings(redis_cert=certificates.pem("foreign"), redis_key=certificates.key("foreign"))
    for error in await both(foreign):
        assert "does not accept the client certificate" in error.message


async def test_a_sentinel_that_cuts_us_off_does_not_hide_what_another_says(start: Start) -> None:
    """It may have said the same: the end of a connection can overtake the word. One that is away may know later."""
    server = start(clients=True)

    async def cut(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cut_off(writer)

    async with await asyncio.start_server(cut, "127.0.0.1", 0) as listener:
        rude, away = listener.sockets[0].getsockname()[1], free_port()
        for other, told in ((rude, NotTrusted), (away, StoreUnavailable)):
            url = f"rediss+sentinel://127.0.0.1:{other},{HOST}:{server.tls_port}/fleet"
            redis = store.connect(server.settings(redis_url=url).store_url)
            with pytest.raises(told):
                await store.wait_until_up(redis, 5 if told is NotTrusted else 0.1, lambda: None)


def test_what_another_connection_broke_of_is_no_word_of_this_one() -> None:
    """Whoever connects anew because one broke has both errors at hand."""
    refused = ssl.SSLError(1, "no")
    refused.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    for broke in (ConnectionResetError("cut off"), refused):
        away = NoConnection("no answer")
        away.__cause__ = ConnectionRefusedError("nobody is there")
        away.__cause__.__context__ = broke
        assert (tls.cut_off(away), tls.fault(away)) == (False, None)
        assert (tls.cut_off(broke), tls.fault(broke)) != (False, None)


@pytest.mark.parametrize("cut", [True, False])
async def test_a_connection_that_breaks_off_before_its_first_command_is_made_anew(
    certificates: Certificates, cut: bool
) -> None:
    """The server cuts it off after its handshake, or who wanted it is cancelled."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.pem("good"), certificates.key("good"))
    came, clients = asyncio.Event(), 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal clients
        clients += 1
        came.set()
        if cut and clients == 1:
            cut_off(writer)
        while line := await reader.readline():
            if line.startswith(b"*"):
                writer.write(b"+OK\r\n")

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as listener:
        url = f"rediss://{HOST}:{listener.sockets[0].getsockname()[1]}/0"
        redis = store.connect(Settings(redis_url=url, redis_ca=certificates.pem("ca")).store_url)
        first = asyncio.create_task(run(redis, PING))
        await came.wait()
        if not cut:
            first.cancel()
        with pytest.raises(StoreUnavailable if cut else asyncio.CancelledError):
            await first
        assert await run(redis, PING) is not None
        await redis.aclose()


async def test_a_server_without_tls_is_told() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"-ERR what was that?\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", free_port()) as listener:
        redis = store.connect(f"rediss://127.0.0.1:{listener.sockets[0].getsockname()[1]}/0")
        with pytest.raises(NotTrusted, match="no TLS"):
            await run(redis, PING)
        await redis.aclose()


async def test_files_that_are_none_are_told(start: Start, certificates: Certificates, tmp_path: Path) -> None:
    server = start()
    (tmp_path / "odd.pem").write_text("nothing")
    for changes in (
        {"redis_ca": tmp_path / "odd.pem"},
        {"redis_cert": tmp_path / "odd.pem", "redis_key": certificates.key("client")},
    ):
        for error in await both(server.settings(**changes)):
            assert "can't be used" in error.message
    with pytest.raises(SetupError, match="a file that is not there"):
        store.connect(server.settings(redis_ca=tmp_path / "absent.pem").store_url)


@pytest.mark.parametrize("option", ["ssl_cert_reqs=none", "ssl_check_hostname=False", "ssl_ciphers=NULL"])
def test_checks_cant_be_switched_off(option: str) -> None:
    for connect in (store.connect, store.connect_sync):
        with pytest.raises(SetupError, match="may not say ssl_"):
            connect(f"rediss://host:6379/0?{option}")


def test_tls_options_without_tls_are_a_mistake(certificates: Certificates) -> None:
    with pytest.raises(SetupError, match="no TLS"):
        store.connect(Settings(redis_url="redis://host/0", redis_ca=certificates.pem("ca")).store_url)


async def test_a_server_that_is_away_is_no_question_of_trust(start: Start) -> None:
    server = start()
    redis = store.connect(server.settings().store_url)
    assert await run(redis, PING)
    server.kill()
    with pytest.raises(StoreUnavailable):
        await run(redis, PING)
    await redis.aclose()
    server.start()


def test_the_command_line_tells_it_in_one_line(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start("expired")
    monkeypatch.setenv("TOKENFLEET_REDIS_URL", server.tls_url.replace("//", "//me:hush@"))
    monkeypatch.setenv("TOKENFLEET_REDIS_CA", str(server.settings().redis_ca))
    result = CliRunner().invoke(cli, ["status"])
    assert result.exit_code == 2
    assert "has expired" in result.output
    assert "Renew it" in result.output
    assert "hush" not in result.output


def test_a_blocking_client_of_the_plain_port_still_works(start: Start) -> None:
    with Redis(port=start().port) as client:
        assert client.ping()
