"""A refusal says what to send, and nothing of what was sent."""

import pytest

from tests.gateway.serving import CHAT, Served

CANARY = "a prompt that nobody else may see"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"messages": CANARY}, 'messages: a list is required, such as [{"role": "user", "content": "…"}]'),
        ({"messages": [CANARY]}, 'messages.0: an object is required, such as {"role": "user", "content": "…"}'),
        ({"fleet": {CANARY: 1}}, "fleet: no such member; there are priority, deadline, tenant, keep, id, "),
        ({"fleet": CANARY}, 'fleet: an object is required, such as {"priority": "low"}'),
    ],
    ids=range(4),
)
async def test_what_to_send_is_told(sim: Served, change: dict[str, object], told: str) -> None:
    async with sim.http() as http:
        refused = await http.post("/v1/chat/completions", json=CHAT | change)
    assert told in refused.json()["error"]["message"]
    assert CANARY not in refused.text
