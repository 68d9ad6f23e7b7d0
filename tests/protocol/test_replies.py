"""Replies that come together, as those of a pipeline do: each is read as if it came alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from redis.asyncio import Redis
from redis.exceptions import BusyLoadingError, InvalidResponse, ResponseError

from protocol import store


class Spoken:
    """A server that answers a pipeline with the bytes that it is told, in one piece."""

    def __init__(self) -> None:
        self.answer = b""
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(ConnectionError):
            while asked := await reader.read(65_536):
                # redis-py introduces itself first.
                writer.write(b"+OK\r\n" * asked.count(b"SETINFO") or self.answer)
        writer.close()


@pytest.fixture
async def spoken() -> AsyncIterator[tuple[Spoken, Redis]]:
    said = Spoken()
    server = await asyncio.start_server(said.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    redis = store.connect(f"redis://127.0.0.1:{port}")
    yield said, redis
    await redis.aclose()
    server.close()


async def three(redis: Redis) -> list[object]:
    pipe = redis.pipeline(transaction=False)
    for _ in range(3):
        pipe.execute_command("ANY")
    return list(await pipe.execute(raise_on_error=False))


async def test_an_error_stands_in_its_place(spoken: tuple[Spoken, Redis]) -> None:
    said, redis = spoken
    said.answer = b":1\r\n-ERR no\r\n*2\r\n$1\r\na\r\n$-1\r\n"
    first, second, third = await three(redis)
    assert (first, third) == (1, [b"a", None])
    assert isinstance(second, ResponseError)
    await three(redis)
    assert said.connections == 1


async def test_a_replica_is_left(spoken: tuple[Spoken, Redis]) -> None:
    said, redis = spoken
    said.answer = b":1\r\n-READONLY You can't write against a read only replica.\r\n:3\r\n"
    results = []
    try:
        results = await three(redis)
    except Exception as error:  # noqa: BLE001 - of the reply behind it, which nobody can read any more
        results.append(error)
    assert not any(isinstance(result, int) and result == 3 for result in results)
    said.answer = b":1\r\n:2\r\n:3\r\n"
    assert await three(redis) == [1, 2, 3]
    assert said.connections == 2


@pytest.mark.parametrize(
    ("second", "kind"), [(b"-LOADING the data set\r\n", BusyLoadingError), (b"?what\r\n", InvalidResponse)]
)
async def test_what_ends_the_connection_ends_it(
    spoken: tuple[Spoken, Redis], second: bytes, kind: type[Exception]
) -> None:
    said, redis = spoken
    said.answer = b":1\r\n" + second + b":3\r\n"
    with pytest.raises(kind):
        await three(redis)
    said.answer = b":1\r\n:2\r\n:3\r\n"
    assert await three(redis) == [1, 2, 3]
    assert said.connections == 2
