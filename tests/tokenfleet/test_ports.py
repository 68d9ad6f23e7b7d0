"""Free ports."""

import socket

from tokenfleet.up.ports import LOOPBACK, free_port, is_free


def test_a_taken_port_is_not_preferred() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert not is_free(port)
        assert free_port(port) != port
    assert free_port(port) == port


def test_a_free_port_can_be_used() -> None:
    assert is_free(free_port())
