"""Frames on the wire: the same payload stands in the token log and on the token channel."""

import re
from collections.abc import Sequence

from protocol import wire
from protocol.messages import Frame, Position
from protocol.states import State
from protocol.wire import JsonObject

# Up to 18 digits: Redis takes stream ids of 64 bits.
_POSITION = re.compile(r"[0-9]{1,18}-[0-9]{1,18}\Z")
_SEAL = b'{"seal":'
"""How a seal begins, as the functions write it."""


def encode(chunks: Sequence[JsonObject], tokens: int | Sequence[int] = 0, after: Position | None = None) -> bytes:
    """A frame's payload: a JSON array of chunks; an object around it where more is to be said.

    Args:
        chunks: what it says.
        tokens: how many that is, or the tokens themselves.
        after: see `Frame.after`.
    """
    more: JsonObject = {"tokens": tokens} if tokens else {}
    if after:
        more["after"] = id_of(after)
    return wire.dumps({**more, "chunks": chunks} if more else chunks)


def decode(frame_id: bytes, payload: bytes) -> Frame:
    """Read a log entry: its id `<attempt>-<seq>` and its payload, chunks or the seal.

    Raises:
        ValueError, KeyError, TypeError, InvalidRequest: no worker of ours has sent it.
    """
    attempt, seq = parse_position(frame_id.decode())
    value = wire.loads(payload)
    if isinstance(value, list):
        return Frame(attempt, seq, chunks=_chunks(value))
    if not isinstance(value, dict):
        raise TypeError("a frame is a list or an object")
    if "seal" in value:
        return Frame(attempt, seq, seal=State(value["seal"]))
    after = parse_position(value["after"]) if "after" in value else None
    tokens = value.get("tokens", 0)
    told = {"ids": tuple(map(int, tokens))} if isinstance(tokens, list) else {"tokens": int(tokens)}
    return Frame(attempt, seq, chunks=_chunks(value["chunks"]), after=after, **told)


def _chunks(value: list[JsonObject]) -> tuple[JsonObject, ...]:
    if not all(isinstance(chunk, dict) for chunk in value):
        raise TypeError("a frame holds objects")
    return tuple(value)


def last_text(log: Sequence[Frame]) -> tuple[Frame, ...]:
    """Of a log's frames those that make up its last text, from its first frame on; none when some are missing."""
    text: list[Frame] = []
    for frame in log:
        before = text[-1] if text else None
        if frame.seal is not None:
            text = []
        elif frame.seq == 1 and frame.after is None:
            text = [frame]
        elif before and (frame.after or (frame.attempt, frame.seq - 1)) == before.position:
            text.append(frame)
        else:
            text = []
    return tuple(text)


def id_of(position: Position) -> str:
    """`<attempt>-<seq>`."""
    return f"{position[0]}-{position[1]}"


def decode_message(message: bytes) -> Frame:
    """Read a pub/sub message: the id, a space, the payload."""
    frame_id, _, payload = message.partition(b" ")
    return decode(frame_id, payload)


def is_seal(message: bytes) -> bool:
    """Whether a pub/sub message is the seal, without decoding it."""
    return message.partition(b" ")[2].startswith(_SEAL)


def parse_position(text: str) -> Position:
    """Read a frame id that a follower kept.

    Raises:
        ValueError: it is not `<attempt>-<seq>`.
    """
    if not _POSITION.match(text):
        raise ValueError("a frame id reads ATTEMPT-SEQ")
    attempt, seq = text.split("-")
    return int(attempt), int(seq)
