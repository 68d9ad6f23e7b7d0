"""Free ports on loopback."""

import socket

from protocol.errors import SetupError

LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """Whether nobody listens on this port of the loopback interface."""
    with socket.socket() as probe:
        # As servers do: a port that only waits for old connections to time out is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def claim_port(wanted: int, preferred: int) -> int:
    """The wanted port, or, when that is 0, a free one.

    Raises:
        SetupError: the wanted port is in use.
    """
    if wanted and not is_free(wanted):
        raise SetupError(f"port {wanted} is in use", "Name another one with --port, or leave it out.")
    return wanted or free_port(preferred)


def free_port(preferred: int = 0) -> int:
    """The preferred port when it is free, else one that the kernel chooses."""
    if preferred and is_free(preferred):
        return preferred
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
