"""Frames on the wire: the same payload stands in the token log and on the token channel."""

import re

from protocol import wire
from protocol.messages import Frame
from protocol.states import State

# Up to 18 digits: Redis takes stream ids of 64 bits.
_POSITION = re.compile(r"[0-9]{1,18}-[0-9]{1,18}\Z")


def decode(frame_id: bytes, payload: bytes) -> Frame:
    """Read a log entry: its id `<attempt>-<seq>` and its payload, a JSON array of chunks or the seal.

    Raises:
        ValueError, KeyError, TypeError, InvalidRequest: no worker of ours has sent it.
    """
    attempt, _, seq = frame_id.partition(b"-")
    value = wire.loads(payload)
    if isinstance(value, list):
        if not all(isinstance(chunk, dict) for chunk in value):
            raise ValueError("a frame holds objects")
        return Frame(int(attempt), int(seq), chunks=tuple(value))
    return Frame(int(attempt), int(seq), seal=State(value["seal"]))


def decode_message(message: bytes) -> Frame:
    """Read a pub/sub message: the id, a space, the payload."""
    frame_id, _, payload = message.partition(b" ")
    return decode(frame_id, payload)


def is_seal(message: bytes) -> bool:
    """Whether a pub/sub message is the seal, without decoding it: a seal is an object, other frames are arrays."""
    return message.partition(b" ")[2].startswith(b"{")


def parse_position(text: str) -> tuple[int, int]:
    """Read a frame id that a follower kept.

    Raises:
        ValueError: it is not `<attempt>-<seq>`.
    """
    if not _POSITION.match(text):
        raise ValueError("a frame id reads ATTEMPT-SEQ")
    attempt, seq = text.split("-")
    return int(attempt), int(seq)
