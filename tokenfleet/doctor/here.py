"""What is wrong between here and Redis: the way there, the clocks, the folder of batches. Pure but for `of_store`."""

import os
import shutil
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from protocol.server_facts import ServerConfig
from tokenfleet.cli.durations import in_words
from tokenfleet.doctor.finding import Finding, fail, ok, warn

SLOW_S = 0.02
"""A token waits so long on its way to Redis, and again on its way to its reader."""
SKEW_WARN_S, SKEW_FAIL_S = 1.0, 60.0
LEAST_FREE_BYTES = 2**30


def of_round_trip(seconds: float) -> Finding:
    """How far away Redis is."""
    said = f"answers after {in_words(max(0.001, seconds))}"
    if seconds > SLOW_S:
        return warn("reach", said, "Every token goes this way twice: put Redis nearer.")
    return ok("reach", said)


def of_skew(skew_s: float, uncertain_s: float) -> Finding:
    """How far Redis's clock is ahead of ours, known up to `uncertain_s`. Deadlines go by Redis's clock alone."""
    least = max(0.0, abs(skew_s) - uncertain_s)
    if least <= SKEW_WARN_S:
        return ok(
            "clock", "Redis's clock is ours, within a second" if uncertain_s <= SKEW_WARN_S else "not far from ours"
        )
    said = f"Redis's clock is {in_words(least)} {'ahead' if skew_s > 0 else 'behind'}"
    advice = "Run an NTP client here and there: times in logs and traces don't match, certificates and webhooks fail."
    return fail("clock", said, advice) if least > SKEW_FAIL_S else warn("clock", said, advice)


def of_way(url: str) -> Finding:
    """Whether what goes to Redis can be read or sent by others on the network.

    Args:
        url: with its password, of which nothing is told.
    """
    parts = urlsplit(url)
    hosts = [_host(address) for address in parts.netloc.rpartition("@")[2].split(",")]
    if parts.scheme == "unix" or all(map(_is_loopback, hosts)):
        return ok("network", "Redis is on this host")
    if not parts.password:
        advice = "Give each role a user (tokenfleet acl), and its password in TOKENFLEET_REDIS_PASSWORD_FILE."
        return fail("network", "Redis is on another host, and takes whoever reaches it: no password is used", advice)
    if not parts.scheme.startswith("rediss"):
        advice = "Use rediss:// (tls-port on the server), unless the network itself is encrypted."
        return warn("network", "prompts, answers and the password cross the network as plain text", advice)
    return ok("network", "TLS and a password")


def of_door(config: ServerConfig, *, anyone: bool) -> Finding:
    """Whether the server lets other hosts in without a password; `anyone`: its default user may do all."""
    elsewhere = not config.addresses or not all(map(_is_loopback, config.addresses))
    if anyone and elsewhere and not config.protected:
        advice = "Bind it to 127.0.0.1, or load the users that `tokenfleet acl` prints."
        return fail("door", "the server takes commands from any host without a password", advice)
    return ok("door", "other hosts need a password" if elsewhere else "the server listens to this host only")


def _host(address: str) -> str:
    try:
        return urlsplit(f"//{address}").hostname or ""
    except ValueError:
        return address


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in ("", "localhost")


def of_store(folder: Path | None) -> Finding:
    """The folder of batches' files: there, writable, with room."""
    if folder is None:
        return ok("store", "none is set: batches run with `batch run` only")
    if not folder.is_dir():
        # It is made when a file is first put there.
        parent = next(place for place in folder.absolute().parents if place.exists())
        if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK) and not folder.exists():
            return warn("store", f"{folder} is not there yet", "Is its disk mounted? It is made with the first file.")
        return fail(
            "store", f"{folder} is not there, and can't be made", "Mount it, or name another with TOKENFLEET_STORE."
        )
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return fail("store", f"{folder} can't be written", "Give it to the user that runs the gateway and the runners.")
    free = shutil.disk_usage(folder).free
    said = f"{folder} has {free / 2**30:.1f} GiB free"
    if free < LEAST_FREE_BYTES:
        return warn("store", said, "Make room: a full disk stops batches. batch_keep_s says how long results stay.")
    return ok("store", said)
