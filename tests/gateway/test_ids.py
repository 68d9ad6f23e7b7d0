"""Names that could reach another key, path or tenant are refused as what they are, wherever they stand."""

from urllib.parse import quote

import pytest

from tests.gateway.serving import CHAT, Served

NAMES = ("a*", "a?b", "[ab]", "a:b", "a/b", "a\\b", "a\0b", "a\nb", "{a}", "x" * 65, "..", "../../etc/passwd", "")


def written(name: str) -> str:
    """As a part of a path; clients would resolve plain dots themselves."""
    return quote(name, safe="").replace(".", "%2E")


@pytest.mark.parametrize("name", [name for name in NAMES if name], ids=ascii)
async def test_in_a_path(front: Served, name: str) -> None:
    asked = written(name)
    handle = f"pool.0.default.{asked}"
    async with front.http() as http:
        for method, path in (
            *(("GET", f"/v1/requests/{handle}"), ("GET", f"/v1/requests/{handle}/stream")),
            *(("POST", f"/v1/requests/{handle}/cancel"), ("GET", f"/v1/requests/{asked}")),
            *(("GET", f"/v1/files/{asked}"), ("GET", f"/v1/files/{asked}/content"), ("DELETE", f"/v1/files/{asked}")),
            *(("GET", f"/v1/batches/{asked}"), ("POST", f"/v1/batches/{asked}/cancel")),
            *(("GET", f"/v1/files?after={asked}"), ("GET", f"/v1/batches?after={asked}")),
        ):
            refused = await http.request(method, path)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_id"), path


@pytest.mark.parametrize("name", NAMES, ids=ascii)
async def test_in_a_body(front: Served, name: str) -> None:
    batch = {"input_file_id": name, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    async with front.http() as http:
        named = await http.post("/v1/chat/completions", json=CHAT | {"fleet": {"id": name}})
        belongs = await http.post("/v1/chat/completions", json=CHAT | {"fleet": {"tenant": name}})
        batched = await http.post("/v1/batches", json=batch)
    for refused, param in ((named, "fleet.id"), (belongs, "fleet.tenant"), (batched, "input_file_id")):
        told = refused.json()["error"]
        assert (refused.status_code, told["code"]) == (400, "invalid_id")
        assert told["param"] in (param, None)


async def test_a_slash_is_a_part_of_a_models_name(front: Served) -> None:
    async with front.http() as http:
        for path in ("/v1/models/org%2Fmodel", "/v1/models/org/model"):
            missing = await http.get(path)
            assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
        assert (await http.get("/v1/nothing/here")).status_code == 404
