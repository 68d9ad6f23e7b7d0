"""What a gateway tells Prometheus of itself. No label ever holds what a client sent: their values are few and known."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from producer.gateway.failures import FilesFull
from protocol.errors import FleetError, QuotaExceeded, RateLimited
from protocol.messages import Outcome

FIRST_TOKEN_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
"""The histogram's bounds."""
OPEN_METRICS = "application/openmetrics-text"
_TOKENS = {"prompt": "prompt_tokens", "completion": "completion_tokens"}


class Metrics:
    """One gateway's metrics.

    Args:
        registry: where they are registered, and what is shown.

    Attributes:
        requests: answers begun, by route (as it stands in the API page, or `other`) and HTTP status; `499`: the client
            left before there was one, `101`: a WebSocket.
        streams: event streams (`sse`) and WebSockets (`ws`) that are open.
        sent_bytes: bodies and messages, without heads.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        own = self._registry = registry
        name = "tokenfleet_gateway_{}".format
        self.requests = Counter(
            name("requests"),
            "Answers begun, by route and status; 499: the client left first.",
            ("route", "code"),
            registry=own,
        )
        self.streams = Gauge(name("open_streams"), "Streams that are open.", ("kind",), registry=own)
        self.sent_bytes = Counter(name("sent_bytes"), "Bytes of answers, without their heads.", registry=own)
        self._limited = Counter(name("limited"), "Requests that a limit refused.", ("limit",), registry=own)
        self._tokens = Counter(name("tokens"), "Tokens of jobs whose end was told here.", ("kind",), registry=own)
        self._first_token = Histogram(
            name("first_token_seconds"),
            "From a request's head to the first token of its stream.",
            ("route",),
            buckets=FIRST_TOKEN_S,
            registry=own,
        )

    def first_token(self, route: str, seconds: float) -> None:
        """A stream's first token goes out, so long after its request's head was here."""
        self._first_token.labels(route).observe(seconds)

    def refused(self, error: FleetError) -> None:
        """A request is refused; it counts where that is for a limit of a key, a tenant or a lane."""
        if isinstance(error, RateLimited):
            self._limited.labels(error.kind).inc()
        elif isinstance(error, QuotaExceeded):
            self._limited.labels("quota").inc()
        elif isinstance(error, FilesFull):
            self._limited.labels("storage").inc()

    def refused_connection(self) -> None:
        """An address has as many as it may."""
        self._limited.labels("connections").inc()

    def ended(self, outcome: Outcome) -> None:
        """A client was told of its job's end."""
        for kind, name in _TOKENS.items():
            count = outcome.usage.get(name)
            # An engine may say anything.
            if isinstance(count, int) and count > 0:
                self._tokens.labels(kind).inc(count)

    def shown(self, accept: str) -> tuple[bytes, str]:
        """The page in a format that a scraper with this `accept` header reads, and its content type."""
        # The header itself is not handed on: a version that is no number is more than the library can bear.
        encode, kind = choose_encoder(OPEN_METRICS if OPEN_METRICS in accept else "")
        return encode(self._registry), kind
