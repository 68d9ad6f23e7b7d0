"""What no gateway can take is refused with a status and a code, and never quoted."""

import asyncio
import gzip
import zlib

import pytest

from producer.gateway import connection
from producer.gateway.connection import HEAD_BYTES
from protocol.wire import dumps, loads
from tests.gateway.serving import CHAT, Served

CANARY = "a prompt that nobody else may see"
GOOD = dumps(CHAT | {"max_tokens": 1})
PATH = "/v1/chat/completions"
INSIDE = "http://169.254.169.254/latest"


def chat(content: bytes) -> bytes:
    """A body whose message holds this JSON text, as it is."""
    return b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":%b}]}' % content


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        GOOD[:-1],
        GOOD + b"x",
        GOOD + GOOD,
        b"[]",
        b"null",
        b'"text"',
        b"{'model': 1}",
        chat(b'"\xff\xfe"'),
        chat(b'"\\ud800"'),
        b'{"model":"m","model":"m","messages":[]}',
        b'{"model":"m","temperature":NaN,"messages":[]}',
        b'{"model":"m","temperature":Infinity,"messages":[]}',
        b'{"model":"m","temperature":1e400,"messages":[]}',
        b'{"model":"m","seed":%b,"messages":[]}' % (b"9" * 5000),
        b'{"model":"m","x":%b,"messages":[]}' % (b"[" * 70 + b"]" * 70),
        b"[" * 100_000,
        b"\0",
        CANARY.encode(),
    ],
    ids=range(20),
)
async def test_what_is_no_json_object(sim: Served, body: bytes) -> None:
    async with sim.http() as http:
        refused = await http.post(PATH, content=body, headers={"content-type": "application/json"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_json")
    assert CANARY not in refused.text


@pytest.mark.parametrize(
    ("path", "change"),
    [
        (PATH, {"model": None}),
        (PATH, {"model": 5}),
        (PATH, {"messages": None}),
        (PATH, {"messages": CANARY}),
        (PATH, {"messages": [CANARY]}),
        (PATH, {"messages": [{"role": "nobody", "content": CANARY}]}),
        (PATH, {"messages": [{"role": "user", "content": 5}]}),
        (PATH, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "file:///x"}]}]}),
        (PATH, {"prompt": CANARY}),
        (PATH, {"max_tokens": True}),
        (PATH, {"max_tokens": 0}),
        (PATH, {"max_tokens": 1 << 40}),
        (PATH, {"temperature": -0.1}),
        (PATH, {"n": 17}),
        (PATH, {"logit_bias": {str(token): 1 for token in range(1_025)}}),
        (PATH, {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": CANARY}}}),
        (PATH, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": INSIDE}}]}]}),
        (PATH, {"messages": [{"role": "user", "content": 200_000 * "word "}]}),
        (PATH, {"fleet": {"deadline": 0}}),
        (PATH, {"fleet": {"deadline": -5}}),
        ("/v1/completions", {"messages": None, "prompt": ""}),
        ("/v1/completions", {"messages": None, "prompt": [-1]}),
        ("/v1/completions", {"messages": None, "prompt": [2_000_000_000]}),
        (
            PATH,
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}},
        ),
        (PATH, {"structured_outputs": {"regex": f"({CANARY}"}}),
        (PATH, {"temperature": CANARY}),
        (PATH, {"stream_options": CANARY, "stream": 1}),
        (PATH, {"stop": 65 * ["x"]}),
        (PATH, {"fleet": {"priority": CANARY}}),
        (PATH, {"fleet": {CANARY: 1}}),
        ("/v1/completions", {}),
        ("/v1/completions", {"messages": None}),
        ("/v1/embeddings", {"messages": None, "input": []}),
        ("/v1/embeddings", {"messages": None, "input": CANARY, "stream": True}),
    ],
    ids=range(34),
)
async def test_what_breaks_a_rule(sim: Served, path: str, change: dict[str, object]) -> None:
    async with sim.http() as http:
        refused = await http.post(path, json=CHAT | change)
    told = refused.json()["error"]
    assert (refused.status_code, told["code"], told["type"]) == (400, "invalid_request", "invalid_request_error")
    assert CANARY not in refused.text


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"a": 17_000 * "x"}},
        {"messages": 1_001 * [{"role": "user", "content": "x"}]},
    ],
    ids=["metadata", "messages"],
)
async def test_what_has_too_many_parts(sim: Served, change: dict[str, object]) -> None:
    async with sim.http() as http:
        refused = await http.post(PATH, json=CHAT | change)
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "too_large")


@pytest.mark.parametrize(
    "content", [b'"\\u0000"', b'"<|im_start|>"', '"\u05e9\u05dc\u05d5\u05dd \u202e"'.encode(), b'""', b'"\xef\xbb\xbf"']
)
async def test_what_is_taken_literally(sim: Served, content: bytes) -> None:
    async with sim.http() as http:
        taken = await http.post(PATH, content=chat(content))
        before = await http.post(PATH, content=b"\xef\xbb\xbf" + chat(content))
    assert (taken.status_code, before.status_code) == (200, 200)


async def test_members_that_nobody_knows_go_to_the_engine(sim: Served) -> None:
    async with sim.http() as http:
        plain = await http.post(PATH, json=CHAT | {"max_tokens": 300})
        endless = await http.post(PATH, json=CHAT | {"max_tokens": 300, "ignore_eos": True, "x_unknown": [1]})
    assert plain.json()["usage"]["completion_tokens"] < 300
    assert endless.json()["usage"]["completion_tokens"] == 300


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        ({"content-type": "text/plain"}, GOOD, 415, "unsupported_media_type"),
        ({"content-type": "application/x-www-form-urlencoded"}, GOOD, 415, "unsupported_media_type"),
        ({"content-type": "multipart/form-data; boundary=x"}, GOOD, 415, "unsupported_media_type"),
        ({"content-encoding": "br"}, GOOD, 415, "unsupported_media_type"),
        ({"content-encoding": "gzip"}, GOOD, 400, "invalid_json"),
        ({"content-encoding": "gzip"}, gzip.compress(GOOD)[:-9], 400, "invalid_json"),
        ({"content-encoding": "gzip"}, gzip.compress(GOOD) + b"x", 400, "invalid_json"),
        ({"content-encoding": "gzip"}, gzip.compress(b" " * 50_000_000), 413, "too_large"),
        ({"content-encoding": "gzip"}, gzip.compress(chat(b"[%b[]]" % (b"[]," * 2_000_000))), 413, "too_large"),
        ({}, chat(b'"%b"' % (b"x" * (2 << 20))), 413, "too_large"),
        ({}, chat(b'"%b"' % (b"x" * (14 << 20))), 413, "too_large"),
    ],
    ids=range(11),
)
async def test_formats_and_sizes(sim: Served, headers: dict[str, str], body: bytes, status: int, code: str) -> None:
    async with sim.http() as http:
        refused = await http.post(PATH, content=body, headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("level", [1, 9])
async def test_gzip(sim: Served, level: int) -> None:
    async with sim.http() as http:
        packed = zlib.compressobj(level, wbits=31)
        body = packed.compress(GOOD) + packed.flush()
        headers = {"content-encoding": "gzip", "content-type": "application/json; charset=utf-8"}
        assert (await http.post(PATH, content=body, headers=headers)).status_code == 200


async def test_a_body_without_an_end(sim: Served) -> None:
    """It is refused, and the connection does not go on for ever."""
    reader, writer = await connect(sim)
    writer.write(b"POST %b HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n" % PATH.encode())
    answer = asyncio.create_task(reader.readline())
    async with asyncio.timeout(20):
        with pytest.raises(ConnectionError):
            await _write_for_ever(writer, b"10000\r\n%b\r\n" % (b" " * 65_536))
    assert (await answer).startswith(b"HTTP/1.1 413")


async def test_a_header_without_an_end(sim: Served) -> None:
    """The parser tells nothing of it, and keeps all of it."""
    reader, writer = await connect(sim)
    writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: ")
    answer = asyncio.create_task(reader.readline())
    async with asyncio.timeout(20):
        with pytest.raises(ConnectionError):
            await _write_for_ever(writer, b"y" * HEAD_BYTES)
    assert (await answer).startswith(b"HTTP/1.1 431")


async def test_a_line_end_that_begins_no_request(sim: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not keep the connection for ever."""
    monkeypatch.setattr(connection, "HEAD_S", 0.2)
    reader, writer = await connect(sim)
    writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
    async with asyncio.timeout(10):
        await reader.readuntil(b'{"status":"ok"}')
        writer.write(b"\r\n")
        assert await reader.read() == b""
    writer.close()


async def _write_for_ever(writer: asyncio.StreamWriter, piece: bytes) -> None:
    while True:
        writer.write(piece)
        await writer.drain()


@pytest.mark.parametrize("head", [b"transfer-encoding: chunked", b"content-length: 500"])
async def test_a_body_that_stops_in_the_middle(sim: Served, head: bytes) -> None:
    """Nor does the connection wait for the rest."""
    answer = await exchange(
        sim, b'POST %b HTTP/1.1\r\nhost: localhost\r\n%b\r\n\r\n5\r\n{"mod\r\n' % (PATH.encode(), head)
    )
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"request_body_timeout" in answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: %b\r\n\r\n" % (b"y" * HEAD_BYTES),
        b"GET /health HTTP/1.1\r\nhost: localhost\r\n%b" % (b"x: y\r\n" * HEAD_BYTES),
        b"GET /%b HTTP/1.1\r\nhost: localhost\r\n\r\n" % (b"y" * HEAD_BYTES),
        b"POST %b HTTP/1.1\r\nhost: localhost\r\nx: %b\r\ncontent-length: 3\r\n\r\nabc"
        % (PATH.encode(), b"y" * HEAD_BYTES),
    ],
    ids=["header", "headers", "path", "body"],
)
async def test_a_head_that_is_too_large(sim: Served, request_bytes: bytes) -> None:
    answer = await exchange(sim, request_bytes)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431")
    assert loads(body)["error"]["code"] == "http_431"


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\x01\x00", b"BREW / HTCPCP\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"]
)
async def test_what_is_no_http(sim: Served, garbage: bytes) -> None:
    assert (await exchange(sim, garbage)).startswith(b"HTTP/1.1 400")


async def test_a_client_that_leaves_in_the_middle_of_its_body(sim: Served) -> None:
    reader, writer = await connect(sim)
    writer.write(b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-length: 500\r\n\r\n{" % PATH.encode())
    await writer.drain()
    writer.transport.abort()
    async with sim.http() as http:
        assert (await http.post(PATH, content=GOOD)).status_code == 200
    del reader


async def test_paths_and_methods_that_there_are_not(sim: Served) -> None:
    async with sim.http() as http:
        for method, path, status in (
            ("GET", "/v2", 404),
            ("GET", PATH, 405),
            ("DELETE", "/v1/models", 405),
            ("GET", "/v1/requests/a%2Fb", 400),
            ("GET", "/v1/requests/..", 404),
            ("GET", "/v1/requests/a", 400),
            ("GET", "/v1/requests/pool.0.t.%00", 400),
            ("GET", "/v1/requests/pool.0.t.*", 400),
            ("POST", f"/v1/requests/pool.99999.default.{65 * 'x'}/cancel", 400),
            ("GET", "/v1/requests/pool.0.default.none", 404),
        ):
            answer = await http.request(method, path)
            assert (answer.status_code, "error" in answer.json()) == (status, True), path


async def connect(served: Served) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))


async def exchange(served: Served, request: bytes) -> bytes:
    """All that comes until the gateway closes."""
    reader, writer = await connect(served)
    writer.write(request)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer
