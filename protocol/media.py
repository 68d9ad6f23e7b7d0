"""Addresses of media in a chat: engines fetch them from inside the operator's network, so private ones are refused."""

import ipaddress
import re
import socket
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from protocol.errors import InvalidRequest

_SCHEMES = frozenset({"http", "https"})
_ADDRESS = re.compile(r"\s*(?:https?|file|ftp):", re.IGNORECASE)
_PRIVATE_NAMES = ("localhost", "local", "internal", "intranet", "lan", "home.arpa")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# Readers differ in what these mean in an address, which has let private hosts pass as public ones.
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f-\xa0\\]")
# Domain names may be written with these in place of a dot.
_DOTS = re.compile("[\u3002\uff0e\uff61]")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def check_parts(where: str, parts: Iterable[object]) -> None:
    """Check the addresses in the parts of a message's content; names are not looked up.

    Raises:
        InvalidRequest: one is no http, https or data URL, or leads to a private address.
    """
    for index, part in enumerate(parts):
        for name, url in _urls(part):
            if problem := _problem(url):
                raise InvalidRequest(f"{where}.{index}.{name}: {problem}")


def _urls(part: object) -> Iterator[tuple[str, object]]:
    """As OpenAI writes them, `{"image_url": {"url": …}}`, and as some servers also take them, without the object.

    Whatever else looks like an address counts too, as in `{"type": "image", "image": …}`; a text is a text.
    """
    if not isinstance(part, Mapping):
        return
    for name, value in part.items():
        if isinstance(value, str) and name != "text" and _ADDRESS.match(value):
            yield str(name), value
        elif isinstance(value, Mapping) and value.get("url") is not None:
            yield str(name), value["url"]
        elif (name == "url" or str(name).endswith("_url")) and value is not None and not isinstance(value, Mapping):
            yield str(name), value


def _problem(url: object) -> str:
    """What is wrong with an address; empty when nothing is."""
    if not isinstance(url, str):
        return "a text is required"
    if url[:5].lower() == "data:":
        return ""
    try:
        parts = urlsplit(url)
        host = _DOTS.sub(".", unicodedata.normalize("NFKC", parts.hostname or "")).rstrip(".").lower()
    except ValueError:
        host = ""
    if not host or _AMBIGUOUS.search(url) or parts.scheme not in _SCHEMES:
        return "an http, https or data URL is required"
    return "it leads to a private address" if _is_private(host) else ""


def _is_private(host: str) -> bool:
    address = _address(host)
    if address is None:
        return any(host == name or host.endswith(f".{name}") for name in _PRIVATE_NAMES)
    return not all(one.is_global and not one.is_multicast for one in [address, *_inside(address)])


def _address(host: str) -> _Address | None:
    """The address that a host's text is, also in the forms that only C libraries read: 127.1, 0x7f.1, 2130706433."""
    with suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0])
    with suppress(OSError, UnicodeEncodeError):
        return ipaddress.IPv4Address(socket.inet_aton(host))
    return None


def _inside(address: _Address) -> Iterator[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 address is a way to."""
    if isinstance(address, ipaddress.IPv4Address):
        return
    for inner in (address.ipv4_mapped, address.sixtofour):
        if inner is not None:
            yield inner
    if address in _NAT64:
        yield ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
