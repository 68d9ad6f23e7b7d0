"""What all requests of one gateway share."""

from dataclasses import dataclass, field
from pathlib import Path

from starlette.requests import HTTPConnection

from producer.fleet import Fleet
from producer.gateway.auth import Grant, KeyRing
from producer.gateway.failures import Forbidden, Unauthenticated, closing_down
from producer.gateway.hosts import names_us
from producer.gateway.leaving import Leavings
from producer.gateway.live.watch import Watch, reading
from producer.gateway.metrics import Metrics
from producer.gateway.outlet import Pace
from producer.gateway.shares import Shares
from producer.gateway.stays import Stays
from producer.scope import Scope
from protocol.errors import InvalidId
from protocol.handle import Handle, check_own_id
from protocol.turns import Turns
from telemetry.serve import new_registry

_HINT = "Send the header `Authorization: Bearer KEY`."
ID_RULE = "a text of 1 to 64 letters, digits and any of _.@=+~,-"
SUBPROTOCOL = "tokenfleet"
_KEY_PROTOCOL = "tokenfleet-key."


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """How a gateway behaves."""

    wait_s: float = 600.0
    """Seconds that an answer which is not streamed is waited for."""
    leave_s: float = 5.0
    """Seconds that the job of a client which has left waits for it to come back."""
    body_s: float = 30.0
    """Seconds that a request's body may take to come; of a file, each next piece of it."""
    file_bytes: int = 512 * 1024 * 1024
    """How large an uploaded file may be."""
    uploads: int = 4
    """Files of one key that may come at once."""
    stored_bytes: int = 64 * 1024**3
    """What one tenant's files may take in the store before no more are taken; 0: no limit."""
    connections: int = 4096
    """What one address may have open at once; 0: no limit."""
    metrics: bool = True
    """Whether `/metrics` is there. It takes no key."""
    pace: Pace = field(default_factory=Pace)
    hosts: tuple[str, ...] = ()
    """Its own names, beside `localhost` and addresses, for browsers that ask without a key."""
    origins: tuple[str, ...] = ()
    """Web pages from there may ask, as `https://app.example`; `*`: from everywhere."""
    certificate: Path | None = None
    """With `private_key`, both as PEM: HTTPS alone is spoken."""
    private_key: Path | None = None


class Gateway:
    """One gateway process: a producer like any other."""

    def __init__(self, fleet: Fleet, ring: KeyRing, options: GatewayOptions | None = None) -> None:
        """Serve `fleet`, which acts for all tenants, to those whose keys `ring` knows."""
        self.fleet = fleet
        self.ring = ring
        self.options = options or GatewayOptions()
        self.stays = Stays()
        self.leavings = Leavings(fleet, self.stays)
        self.metrics = Metrics(new_registry())
        self.uploads = Shares(self.options.uploads)
        self.watch = Watch(reading(fleet.redis))
        self.turns = Turns()
        """Of the streams that go on."""
        self.closing = False

    async def admit(self, connection: HTTPConnection) -> Grant:
        """Who is asking.

        Raises:
            Unauthenticated: nobody that we know.
            Forbidden: a page of another origin, or one under a name that is not ours, where no key is asked for.
            StoreUnavailable: the keys can't be looked at.
        """
        key = _key_of(connection)
        grant = await self.ring.find(key)
        if grant is None:
            raise Unauthenticated("this API key is not known, or was revoked" if key else "no API key was sent", _HINT)
        if not grant.key_id:
            self._check_page(connection)
        return grant

    def _check_page(self, connection: HTTPConnection) -> None:
        """Without a key any page could ask in the place of who looks at it: browsers send what no page may read."""
        origin, host = connection.headers.get("origin", ""), connection.headers.get("host", "")
        if not names_us(host, self.options.hosts):
            # The stranger's own name, which leads here: to the browser, that page and we are one origin.
            raise Forbidden("without keys, this gateway has no such name", "Let it have one with --allow-host NAME.")
        allowed = origin.endswith(f"://{host}") or not {origin, "*"}.isdisjoint(self.options.origins)
        if origin and not allowed:
            raise Forbidden("web pages of other origins may not ask here", "Let them with --cors ORIGIN.")

    def check_open(self) -> None:
        """Take no new job while it closes.

        Raises:
            ClosingDown: it does.
        """
        if self.closing:
            raise closing_down()

    async def shut(self, grace_s: float, last_s: float = 5.0) -> None:
        """Let what is being answered end within `grace_s` seconds; then tell the rest how to go on elsewhere."""
        self.closing = True
        self.watch.close()
        if not await self.stays.until_empty(grace_s):
            self.stays.end_all()
            await self.stays.until_empty(last_s)
        await self.leavings.close(last_s)


def gateway_of(connection: HTTPConnection) -> Gateway:
    """The gateway that a request came to."""
    gateway: Gateway = connection.app.state.gateway
    return gateway


def known(grant: Grant, request_id: str) -> Handle:
    """The job that a request's id names; another tenant's one is as if it were not there.

    Raises:
        InvalidId: it is no such id.
    """
    return Scope(grant.tenant).known(Handle.parse(request_id))


def checked_id(text: str, what: str = "id") -> str:
    """A file's or a batch's id, before anything is looked up by it.

    Raises:
        InvalidId: nothing can have this id.
    """
    try:
        return check_own_id(text)
    except InvalidId:
        raise InvalidId(f"{what}: {ID_RULE} is required") from None


def _key_of(connection: HTTPConnection) -> str:
    """The bearer's key. Browsers can set no header for a WebSocket, so there a subprotocol may carry it."""
    scheme, _, key = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    offered: list[str] = connection.scope.get("subprotocols", [])
    return next((one.removeprefix(_KEY_PROTOCOL) for one in offered if one.startswith(_KEY_PROTOCOL)), "")
