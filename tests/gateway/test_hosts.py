"""Under which names a gateway answers whoever has no key."""

from dataclasses import replace

import pytest

from producer.gateway.auth import Grant
from producer.gateway.hosts import names_us
from tests.gateway.serving import CHAT, QUICK, Ring, serving


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "localhost.",
        "app.localhost:1",
        "127.0.0.1:8080",
        "[::1]:8080",
        "10.0.0.5",
        "fleet.lan",
        "Fleet.LAN:80",
    ],
)
def test_names_that_are_ours(host: str) -> None:
    assert names_us(host, ("fleet.lan",))


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "notlocalhost",
        "[::1",
        "[evil.example]",
        "fleet.lan.evil.example",
        "evil.example:localhost",
    ],
)
def test_names_that_are_not(host: str) -> None:
    assert not names_us(host, ("fleet.lan",))


async def test_a_page_that_leads_its_own_name_here_is_refused(valkey_url: str) -> None:
    rebound = {"host": "evil.example:8080", "origin": "http://evil.example:8080"}
    ring = Ring({"any": Grant("default", ""), "key": Grant("default", "k")})
    options = replace(QUICK, hosts=("fleet.lan",))
    async with (
        serving(valkey_url, ring=ring, options=options) as front,
        front.http() as http,
        front.http("key") as keyed,
    ):
        for method, path, body in (("POST", "/v1/chat/completions", CHAT), ("GET", "/v1/models", None)):
            for headers in (rebound, {"host": "evil.example"}):
                refused = await http.request(method, path, json=body, headers=headers)
                assert refused.status_code == 403
                assert "--allow-host" in refused.json()["error"]["message"]
        own: tuple[dict[str, str], ...] = ({}, {"host": "fleet.lan:80"})
        assert [(await http.get("/v1/models", headers=headers)).status_code for headers in own] == [200, 200]
        # Who has a key is no page that came by: a browser sends it for none.
        assert (await keyed.get("/v1/models", headers={"host": "evil.example"})).status_code == 200
