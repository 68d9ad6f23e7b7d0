"""A client as browsers are: it counts an event once its blank line has come, and goes on after the last one's id."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import aiohttp

from bench import parts
from bench.resume.cuts import END_OF_EVENT, Cut, CuttingProxy
from protocol.wire import JsonObject, loads

LONGEST_S = 120.0
DONE = "[DONE]"


@dataclass(frozen=True, slots=True)
class SentEvent:
    """One that has come whole."""

    id: str
    name: str
    data: str


class Events:
    """Reads server-sent events from bytes."""

    def __init__(self) -> None:
        """Nothing has come yet."""
        self.rest = b""
        """What has come of the next event."""

    def take(self, data: bytes) -> Iterator[SentEvent]:
        """The events that are whole now."""
        *whole, self.rest = (self.rest + data).split(END_OF_EVENT)
        for block in whole:
            # Comments have no name before their colon.
            parts_of = (line.partition(": ") for line in block.decode().split("\n"))
            fields = {name: value for name, _, value in parts_of if name}
            yield SentEvent(fields.get("id", ""), fields.get("event", ""), fields.get("data", ""))

    @property
    def breaks_a_character(self) -> bool:
        """Whether what has come ends within one."""
        try:
            self.rest.decode()
        except UnicodeDecodeError:
            return True
        return False


@dataclass
class Stream:
    """One stream through all of its cuts, at the gateways in turn.

    Attributes:
        ports: where the gateways listen.
        cuts: one for each connection; the next one is left alone.
        number: tells it from the others.
    """

    ports: Sequence[int]
    cuts: Sequence[Cut]
    number: int
    tokens: int
    text: str = ""
    made: list[Cut] = field(default_factory=list)
    """The cuts that took place."""
    half_events: int = 0
    """Cuts after which the client had a part of an event."""
    half_characters: int = 0
    restarts: int = 0
    _path: str = ""
    _place: str = ""
    _over: bool = False

    async def read(self) -> str:
        """Read it to its end; yields the whole text, as the gateway has it then."""
        async with asyncio.timeout(LONGEST_S):
            for number, cut in enumerate([*self.cuts, None]):
                proxy = CuttingProxy(self.ports[(self.number + number) % len(self.ports)], cut)
                async with proxy.listening() as port:
                    await self._connection(port)
                if cut and proxy.made:
                    self.made.append(cut)
            if not self._over:
                raise RuntimeError("a stream that nobody cut broke off")
            return await self._whole(self.ports[self.number % len(self.ports)])

    async def _connection(self, port: int) -> None:
        """Until it is cut, or the stream ends."""
        events = Events()
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            try:
                async with self._asked(session) as answer:
                    answer.raise_for_status()
                    self._path = f"/v1/requests/{answer.headers['x-request-id']}"
                    async for data in answer.content.iter_any():
                        for event in events.take(data):
                            self._take(event)
            except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                self.half_events += bool(events.rest.strip())
                self.half_characters += events.breaks_a_character

    def _asked(self, session: aiohttp.ClientSession) -> "aiohttp.client._RequestContextManager":
        """Begin, by an id of its own: a client that was cut before it heard of its job asks for the same one again."""
        if self._path:
            headers = {"last-event-id": self._place} if self._place else {}
            return session.get(f"{self._path}/stream", headers=headers)
        body = {
            "model": parts.MODEL,
            "messages": [{"role": "user", "content": f"tell me of the sea, part {self.number}"}],
            "stream": True,
            "max_tokens": self.tokens,
            "ignore_eos": True,
            "fleet": {"id": f"stream-{self.number}"},
        }
        return session.post("/v1/chat/completions", json=body)

    def _take(self, event: SentEvent) -> None:
        self._place = event.id or self._place
        if event.data == DONE:
            self._over = True
        elif event.name == "restart":
            self.text, self.restarts = "", self.restarts + 1
        else:
            self.text += _said(loads(event.data))

    async def _whole(self, port: int) -> str:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{self._path}") as answer:
            return str((await answer.json())["response"]["choices"][0]["message"]["content"])


def _said(chunk: JsonObject) -> str:
    """The text of a chunk.

    Raises:
        RuntimeError: it tells of a failure.
    """
    if "choices" not in chunk:
        raise RuntimeError("a stream failed")
    return "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
