"""The simulated Redis: fakeredis without its sockets, with a clock to turn, a past to go back to and a full memory."""

import copy
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fakeredis
from fakeredis._core import Database, Item
from fakeredis._socket._fakesocket import FakeSocket
from fakeredis.model import ExpiringMembersSet, Hash, XStream, ZSet
from redis import Redis
from redis.exceptions import OutOfMemoryError

from protocol import library
from protocol.call import Arg
from tests.support.snapshot import Entry, Snapshot

EPOCH_S = 1_800_000_000.0
"""Long after the moment from which attempts are numbered once Redis has lost some: a clock that jumps back stays so."""
_NEEDS_MEMORY = frozenset({"SET", "HSET", "XADD", "ZADD", "SADD"})
_REFUSED_WHEN_FULL = "_submit"
"""The one function that is not flagged `allow-oom`."""
_CALLBACKS: dict[str, Callable[[Any], Any]] = dict(Redis().response_callbacks)


class Connection(FakeSocket):
    """A connection without fakeredis's locks, and without the keyspace events that nobody has asked for."""

    def __init__(self, server: fakeredis.FakeServer) -> None:
        super().__init__(server, 0, client_class=Redis)
        self.messages: deque[Any] = deque()

    def put_response(self, msg: Any) -> None:  # noqa: ANN401 - as fakeredis makes it
        """A reply, or a message to a subscriber."""
        self.messages.append(msg)

    def _keyspace_notifications(self, command_items: Sequence[Any], event: bytes) -> None:
        """Redis tells them only where it is configured to."""

    def _subkey_notifications(self, command_items: Sequence[Any]) -> None:
        """As those of keys."""


class Watched(Database):
    """A database that notes which keys were written."""

    def __init__(self, lock: Any) -> None:  # noqa: ANN401 - fakeredis's own signature
        super().__init__(lock)
        self.written: set[bytes] = set()

    def notify_watch(self, key: bytes) -> None:
        """`key` is about to change."""
        self.written.add(key)

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None

    def get(self, key: Any, default: Any = None) -> Any:  # noqa: ANN401 - fakeredis's own signature
        """As the base's, without an exception for each key that is not there."""
        item = self._dict.get(key)
        if item is None:
            return default
        return item if item.expireat is None else super().get(key, default)


@dataclass(frozen=True, slots=True)
class Past:
    """What an append-only file held at one moment."""

    items: Mapping[bytes, Item]


class Store:
    """One server, whose clock may jump; the processes' clocks do not follow it.

    Attributes:
        elapsed_s: since the run began.
        jumped_s: how far its clock is ahead of the time that has passed.
        full: its memory is: what is not flagged `allow-oom` is refused.
    """

    def __init__(self) -> None:
        self.elapsed_s = self.jumped_s = 0.0
        self.full = False
        self._server = fakeredis.FakeServer()
        self._data = self._server.dbs[0] = Watched(self._server.lock)
        self._entries: dict[str, Entry] = {}
        self._snapshot = Snapshot({})
        self._ends: dict[str, float] = {}
        self._streams: dict[str, XStream] = {}
        self._own = self.socket()
        self.do(self._own, ("FUNCTION", "LOAD", library.source()))

    @property
    def snapshot(self) -> Snapshot:
        """All that it holds, decoded, as it was at the last `look`; what did not change stays the same object."""
        return self._snapshot

    def time(self) -> float:
        """Seconds, as fakeredis asks for them."""
        return EPOCH_S + self.elapsed_s + self.jumped_s

    def socket(self) -> Connection:
        """A connection."""
        return Connection(self._server)

    def do(self, socket: Connection, command: Sequence[Arg]) -> Any:  # noqa: ANN401 - a reply has any type
        """Carry out one command; an error of Redis is returned, not raised."""
        if self.full and self._refuses(command):
            return OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")
        socket._process_command([_encoded(part) for part in command])
        reply = socket.messages.popleft() if socket.messages else None
        callback = _CALLBACKS.get(str(command[0]).upper())
        return reply if callback is None or isinstance(reply, Exception) else callback(reply)

    def send(self, socket: Connection, command: Sequence[Arg]) -> None:
        """Carry out a subscriber's command: what it says stays in the socket, among the messages."""
        socket._process_command([_encoded(part) for part in command])

    def look(self) -> set[str]:
        """Bring the snapshot up to date; the keys that changed since the last look."""
        data, now_s = self._data, self.time()
        data.time = now_s
        ended = [name for name, end_s in self._ends.items() if end_s < now_s]
        changed = {key.decode() for key in data.written} | self._shortened()
        data.written.clear()
        for name in changed.union(ended):
            item = data._dict.get(name.encode())
            self._ends.pop(name, None)
            self._streams.pop(name, None)
            if item is None or data.expired(item):
                self._entries.pop(name, None)
                continue
            if item.expireat is not None:
                self._ends[name] = item.expireat
            if isinstance(item.value, XStream):
                self._streams[name] = item.value
            self._entries[name] = Entry(item.expireat is not None, _decoded(item.value))
        if changed or ended:
            self._snapshot = Snapshot(dict(self._entries))
        return changed.union(ended)

    def drop_expired(self) -> None:
        """As Redis does by itself ten times a second: what has ended does not live again when the clock goes back."""
        self.look()
        items = self._data._dict
        for key in [key for key, item in items.items() if self._data.expired(item)]:
            del items[key]

    def _shortened(self) -> set[str]:
        """Streams that lost an entry: fakeredis's XDEL does not count as a write."""
        entries = self._entries
        return {name for name, stream in self._streams.items() if len(stream._ids) != len(entries[name].value)}

    def remember(self) -> Past:
        """The present, for `go_back`."""
        return Past(copy.deepcopy(self._data._dict))

    def go_back(self, past: Past) -> None:
        """Restart from an append-only file that ends there."""
        self._data.written |= self._data._dict.keys() | past.items.keys()
        self._data._dict = copy.deepcopy(dict(past.items))
        self._data._expiry_heap.clear()
        for key, item in self._data._dict.items():
            self._data.schedule_expiry(key, item.expireat)

    def restart(self) -> None:
        """What only its memory held is gone, also what the functions keep there."""
        if self.do(self._own, ("FUNCTION", "LIST")):
            self.do(self._own, ("FUNCTION", "LOAD", "REPLACE", library.source()))

    def flush_functions(self) -> None:
        """As somebody does who shares the server."""
        self.do(self._own, ("FUNCTION", "FLUSH"))

    def write(self, *command: Arg) -> Any:  # noqa: ANN401 - a reply has any type
        """As an operator by hand."""
        return self.do(self._own, command)

    @staticmethod
    def _refuses(command: Sequence[Arg]) -> bool:
        name = str(command[0]).upper()
        return name in _NEEDS_MEMORY or (name == "FCALL" and str(command[1]).endswith(_REFUSED_WHEN_FULL))


def _encoded(part: Arg) -> bytes:
    return part if isinstance(part, bytes) else str(part).encode()


def _decoded(value: Any) -> Any:  # noqa: ANN401 - whatever fakeredis stores
    if isinstance(value, Hash):
        return {name.decode(): item.decode() for name, item in value._values.items()}
    if isinstance(value, ZSet):
        return {member.decode(): score for score, member in value._byscore}
    if isinstance(value, XStream):
        return [(key.encode().decode(), _fields(value._values_dict[key])) for key in value._ids]
    if isinstance(value, ExpiringMembersSet):
        return set(value._values)
    return value


def _fields(flat: Sequence[bytes]) -> dict[str, str]:
    return {flat[at].decode(): flat[at + 1].decode() for at in range(0, len(flat), 2)}
