"""Whether a gateway lives, and whether it takes requests; what it says of a Redis that is away."""

from tests.gateway.serving import CHAT, serving
from tests.support.servers import Server
from tests.support.waiting import eventually


async def test_a_gateway_whose_redis_is_away_lives_and_is_not_ready(server: Server) -> None:
    async with serving(server.url, patience_s=0.2) as front, front.http() as http:
        assert (await http.get("/ready")).json() == {"status": "ready"}
        server.stop()
        away, alive = await http.get("/ready"), await http.get("/health")
        refused = await http.post("/v1/chat/completions", json=CHAT)
        looked = await http.get("/v1/requests/pool.0.default.any")
        server.start()

        async def ready() -> bool:
            return (await http.get("/ready")).status_code == 200

        await eventually(ready)
    assert (away.status_code, alive.status_code) == (503, 200)
    for answer in (refused, looked):
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
        assert answer.headers["retry-after"] == "1"


async def test_a_redis_that_hangs(server: Server) -> None:
    async with serving(server.url, patience_s=0.2) as front, front.http() as http:
        server.pause()
        away = await http.get("/ready")
        server.resume()
    assert away.status_code == 503
