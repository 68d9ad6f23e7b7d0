"""Connections that are kept, against a server that closes them in every way there is."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from tests.worker.engine.attempts import chat, collect
from tests.worker.engine.test_openai import DONE, END, USAGE_CHUNK, said
from worker.engine import connections
from worker.engine.base import EngineDead, EngineFault, EngineRequest
from worker.engine.openai import OpenAIEngine
from worker.engine.openai_http import UNIX, Upstream
from worker.engine.options import EngineOptions

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
LAST = b"0\r\n\r\n"


@dataclass
class Server:
    """Each request is answered by the next act, in the end by a whole answer."""

    acts: list["Act"] = field(default_factory=list)
    heard: list[tuple[int, str]] = field(default_factory=list)
    """Of each request to generate: the number of its connection, and its id."""
    questions: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a client has closed a connection."""
    listening: asyncio.Server | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.writers)
        self.writers.append(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
                await reader.readexactly(int(lines.get("Content-Length", 0)))
                if not (is_job := head.startswith(b"POST /v1/")):
                    self.questions += 1
                else:
                    self.heard.append((number, lines["X-Request-Id"]))
                await (self.acts.pop(0) if self.acts else answers if is_job else agrees)(self, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()

    def cut_idle(self) -> None:
        """Close all connections in this very moment: the client's event loop has not seen it yet."""
        for writer in self.writers:
            writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def die(self) -> None:
        assert self.listening
        self.listening.close()
        for listener in self.listening.sockets:
            listener.close()
        for writer in self.writers:
            writer.transport.abort()


Act = Callable[[Server, asyncio.StreamWriter], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def answers(_server: Server, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM + chunk(said("Hi") + END + USAGE_CHUNK + DONE) + LAST)


async def agrees(_server: Server, writer: asyncio.StreamWriter) -> None:
    writer.write(OK)


async def answers_without_an_end(_server: Server, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM + chunk(said("Hi") + END + USAGE_CHUNK + DONE))


async def begins(_server: Server, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM + chunk(said("Hi")))


async def says_nothing(_server: Server, _writer: asyncio.StreamWriter) -> None:
    pass


async def closes(_server: Server, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def resets(_server: Server, writer: asyncio.StreamWriter) -> None:
    """Without time to linger the system resets it."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


async def breaks_in_the_head(_server: Server, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM[:30])
    writer.close()


async def dies(server: Server, _writer: asyncio.StreamWriter) -> None:
    server.die()


@pytest.fixture(params=["tcp", "unix"])
async def url(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> AsyncIterator[str]:
    if request.param == "unix":
        path = tmp_path / "http"
        server.listening = await asyncio.start_unix_server(server.serve, path)
        address = f"{UNIX}{path}"
    else:
        server.listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        address = f"http://127.0.0.1:{server.listening.sockets[0].getsockname()[1]}"
    yield address
    server.die()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def engine(url: str) -> AsyncIterator[OpenAIEngine]:
    built = OpenAIEngine(EngineOptions(attach=url, slots=2))
    yield built
    await built.close()


async def whole(engine: OpenAIEngine) -> EngineRequest:
    """One more request, which is answered as it should be."""
    wanted = chat("Hi")
    assert len(await collect(engine, wanted)) == 3
    return wanted


async def test_one_job_after_the_other_goes_over_one_connection(engine: OpenAIEngine, server: Server) -> None:
    asked = [await whole(engine) for _ in range(3)]
    assert server.heard == [(0, wanted.request_id) for wanted in asked]


async def test_what_is_idle_for_too_long_serves_no_more(
    engine: OpenAIEngine, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "KEPT_S", 0.0)
    for _ in range(2):
        await whole(engine)
    assert [number for number, _ in server.heard] == [0, 1]


@pytest.mark.parametrize("breaks", [closes, resets])
async def test_a_kept_connection_that_breaks_at_once_is_tried_again_with_a_new_one(
    engine: OpenAIEngine, server: Server, breaks: Act
) -> None:
    first = await whole(engine)
    server.acts = [breaks]
    wanted = await whole(engine)
    id_ = wanted.request_id
    assert server.heard == [(0, first.request_id), (0, id_), (1, f"{id_}-again")]
    # The new one is kept in turn.
    await whole(engine)
    assert server.heard[-1][0] == 1


@pytest.mark.parametrize("breaks", [closes, resets])
async def test_the_new_one_is_new_however_many_are_kept(engine: OpenAIEngine, server: Server, breaks: Act) -> None:
    await asyncio.gather(*(whole(engine) for _ in range(3)))
    server.acts = [breaks]
    await whole(engine)
    assert server.heard[-1][0] == 3


@pytest.mark.parametrize("breaks", [closes, resets])
async def test_a_new_connection_that_breaks_is_a_fault(engine: OpenAIEngine, server: Server, breaks: Act) -> None:
    server.acts = [breaks]
    with pytest.raises(EngineFault, match="broke"):
        await collect(engine, chat("Hi"))
    assert len(server.heard) == 1


async def test_nothing_is_sent_a_third_time(engine: OpenAIEngine, server: Server) -> None:
    await whole(engine)
    server.acts = [closes, closes]
    with pytest.raises(EngineFault, match="broke"):
        await collect(engine, chat("Hi"))
    assert [number for number, _ in server.heard] == [0, 0, 1]


async def test_what_kills_the_engine_over_a_kept_connection_is_blamed(engine: OpenAIEngine, server: Server) -> None:
    await whole(engine)
    server.acts = [dies]
    with pytest.raises(EngineDead) as caught:
        await collect(engine, chat("Hi"))
    assert caught.value.reached
    assert len(server.heard) == 2


async def test_what_comes_after_the_engine_died_unseen_is_not(engine: OpenAIEngine, server: Server) -> None:
    await whole(engine)
    server.cut_idle()
    server.die()
    with pytest.raises(EngineDead) as caught:
        await collect(engine, chat("Hi"))
    assert not caught.value.reached


async def test_nothing_is_sent_over_what_was_closed_unseen(engine: OpenAIEngine, server: Server) -> None:
    await asyncio.gather(*(whole(engine) for _ in range(2)))
    server.cut_idle()
    wanted = await whole(engine)
    assert server.heard[2:] == [(2, wanted.request_id)]


async def test_nothing_is_sent_over_what_has_said_something_meanwhile(engine: OpenAIEngine, server: Server) -> None:
    """As proxies do before they close an idle connection: it would pass for the next answer."""
    await whole(engine)
    server.writers[0].write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
    await eventually(lambda: any(kept.is_connected() and kept.should_close for kept in connections._MET))
    await whole(engine)
    assert server.heard[-1][0] == 1


async def test_an_answer_that_has_begun_is_not_asked_for_again(engine: OpenAIEngine, server: Server) -> None:
    for breaks in (breaks_in_the_head, begins_and_closes):
        await whole(engine)
        before = len(server.heard)
        server.acts = [breaks]
        with pytest.raises(EngineFault, match="broke"):
            await collect(engine, chat("Hi"))
        assert len(server.heard) == before + 1


async def begins_and_closes(server: Server, writer: asyncio.StreamWriter) -> None:
    await begins(server, writer)
    writer.close()


async def test_what_breaks_late_was_at_work(
    engine: OpenAIEngine, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await whole(engine)
    monkeypatch.setattr(connections, "AGAIN_S", 0.0)
    server.acts = [closes]
    with pytest.raises(EngineFault, match="broke"):
        await collect(engine, chat("Hi"))
    assert len(server.heard) == 2


@pytest.mark.parametrize("act", [begins, says_nothing])
async def test_who_is_cancelled_breaks_a_kept_connection(engine: OpenAIEngine, server: Server, act: Act) -> None:
    await whole(engine)
    server.acts = [act]
    reading = asyncio.ensure_future(collect(engine, chat("Hi")))
    await eventually(lambda: len(server.heard) == 2)
    reading.cancel()
    async with asyncio.timeout(5):
        await server.left.wait()
    await asyncio.gather(reading, return_exceptions=True)
    await whole(engine)
    assert server.heard[-1][0] == 1


async def test_who_stops_reading_breaks_it_at_once(engine: OpenAIEngine, server: Server) -> None:
    await whole(engine)
    server.acts = [begins]
    async with aclosing(engine.generate(chat("Hi"))) as chunks:
        await anext(chunks)
        assert not server.left.is_set()
    async with asyncio.timeout(5):
        await server.left.wait()


async def test_what_was_waiting_when_all_is_closed_is_not_sent_again(engine: OpenAIEngine, server: Server) -> None:
    await whole(engine)
    server.acts = [says_nothing]
    reading = asyncio.ensure_future(collect(engine, chat("Hi")))
    await eventually(lambda: len(server.heard) == 2)
    await engine.close()
    with pytest.raises(EngineFault, match="broke"):
        await reading
    assert len(server.heard) == 2


async def test_an_answer_without_an_end_is_left_after_its_last_event(
    engine: OpenAIEngine, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "END_S", 0.01)
    server.acts = [answers_without_an_end]
    await whole(engine)
    async with asyncio.timeout(5):
        await server.left.wait()
    await whole(engine)
    assert server.heard[-1][0] == 1


async def test_an_end_that_comes_after_the_last_event_keeps_the_connection(
    engine: OpenAIEngine, server: Server
) -> None:
    server.acts = [answers_without_an_end]
    await whole(engine)
    server.writers[0].write(LAST)
    await whole_over_the_first(engine, server)


async def whole_over_the_first(engine: OpenAIEngine, server: Server) -> None:
    """The end may take a turn of the event loop."""

    async def over_the_first() -> bool:
        await whole(engine)
        return server.heard[-1][0] == 0

    await eventually(over_the_first)


async def test_questions_are_asked_again_too(url: str, server: Server) -> None:
    upstream = Upstream(url)
    for acts in ([], [closes]):
        server.acts = list(acts)
        assert await upstream.post("/tokenize", {}) == (200, {})
    assert (server.questions, len(server.writers)) == (3, 2)
    server.acts = [dies]
    assert await upstream.post("/tokenize", {}) == (0, {})
    await upstream.close()
