"""Whether a request means this gateway by the name that it was sent to."""

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

LOCAL = "localhost"


def names_us(host: str, names: Collection[str]) -> bool:
    """Whether a `Host` header's name is an address, `localhost` or one of `names`.

    A page of a stranger can lead a name of its own to this gateway. It can't do so with an address: what a browser
    sends to one, a page has that came from there, and from other pages its `Origin` tells.
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    return name == LOCAL or name.endswith(f".{LOCAL}") or name in names or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
