"""TLS to Redis: certificates are always checked, and what fails is told in one line."""

import ssl
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from protocol.errors import NotTrusted, SetupError

_FILE_FAULTS = ("pem lib", "no certificate or crl found", "no start line", "key values mismatch", "bad decode")
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
# redis-py 5 leaves the host name unchecked when it is not told.
_CHECKS = (("ssl_cert_reqs", "required"), ("ssl_check_hostname", "True"))


def checked(url: str) -> str:
    """The URL with certificate checks switched on where it asks for TLS; others as they are.

    Raises:
        SetupError: it switches them off, or names a file that is not there.
        ValueError: it is malformed.
    """
    parts = urlsplit(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    if not parts.scheme.startswith("rediss"):
        if any(name.startswith("ssl_") for name, _ in options):
            raise SetupError("the Redis URL has TLS options and no TLS", "Begin it with rediss://.")
        return url
    for name, value in options:
        if name.startswith("ssl_") and name not in _FILES:
            raise SetupError(f"the Redis URL may not say {name}", "The server's certificate is always checked.")
        if name in _FILES and not Path(value).is_file():
            raise SetupError(f"the Redis URL's {name} names a file that is not there: {value}")
    return urlunsplit(parts._replace(query=urlencode([*options, *_CHECKS])))


def with_files(url: str, ca: Path | None, certificate: Path | None, key: Path | None) -> str:
    """The URL with the files that the settings name."""
    parts = urlsplit(url)
    given = [(name, str(path)) for name, path in zip(_FILES, (ca, certificate, key), strict=True) if path]
    query = urlencode([*parse_qsl(parts.query, keep_blank_values=True), *given])
    return urlunsplit(parts._replace(query=query)) if given else url


def fault(error: BaseException) -> NotTrusted | None:
    """What TLS failed of, where `error` came of that; None for what may pass by itself, as a connection that is cut."""
    cause = _own(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _not_verified(cause)
    return _refused(cause) if isinstance(cause, ssl.SSLError) else None


def cut_off(error: BaseException) -> bool:
    """Whether the other side ended the connection in the middle."""
    return isinstance(_own(error), ConnectionResetError | BrokenPipeError)


def _refused(found: ssl.SSLError) -> NotTrusted | None:
    # "[SSL: THE_REASON] …" or "[SSL] the reason (…)"
    reason = (found.reason or str(found).partition("] ")[2].partition(" (")[0]).replace("_", " ").lower()
    if "certificate required" in reason:
        hint = "Name one in TOKENFLEET_REDIS_CERT, and its key in TOKENFLEET_REDIS_KEY."
        return NotTrusted("Redis wants a client certificate", hint)
    if "alert" in reason and "internal" not in reason:
        return NotTrusted(f"Redis does not accept the client certificate ({reason})", "Its CA must be Redis's own.")
    if reason in ("wrong version number", "record layer failure", "packet length too long"):
        return NotTrusted("what listens there speaks no TLS", "Use Redis's TLS port, or redis:// on a private network.")
    if any(sign in reason for sign in _FILE_FAULTS):
        return NotTrusted(f"a file with certificates or their key can't be used ({reason})", "Look at what is in it.")
    return None


def _not_verified(error: ssl.SSLCertVerificationError) -> NotTrusted:
    match error.verify_code:
        case 62 | 64:
            return NotTrusted("Redis's certificate is for another host", "Use a host name that stands in it.")
        case 10:
            return NotTrusted("Redis's certificate has expired", "Renew it on the server.")
        case 9:
            return NotTrusted("Redis's certificate is not valid yet", "Compare this machine's clock with the server's.")
    hint = "Name that CA's certificate in TOKENFLEET_REDIS_CA."
    return NotTrusted("Redis's certificate is of a CA that is not known here", hint)


def _own(error: BaseException | None) -> OSError | None:
    """What the network said, where `error` came of that; behind it may stand what another connection broke of."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error
