"""`tokenfleet gateway` as a process."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import openai
import pytest

from protocol.wire import JsonObject, loads
from tests.gateway.serving import CHAT, MODEL
from tests.support.servers import Server, free_port

END_S = 20
CANARY = "canary-7c1f"


@dataclass
class Running:
    """A gateway's process, and where it listens."""

    process: "subprocess.Popen[str]"
    url: str


def command(redis_url: str, *options: str) -> list[str]:
    arguments = ["gateway", "--json", "--port", "0", "--redis-url", redis_url, "--log-format", "json", *options]
    return [sys.executable, "-m", "tokenfleet", *arguments]


@contextmanager
def running(redis_url: str, *options: str) -> Iterator[Running]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command(redis_url, *options), text=True, **pipes) as process:  # type: ignore[call-overload]  # it does not follow a mapping
        try:
            assert process.stdout
            yield Running(process, loads(process.stdout.readline())["url"])
        finally:
            process.kill()


def status_under(gateway: Running, name: str) -> int:
    """What who has no key is answered under this name."""
    return httpx.get(f"{gateway.url}/v1/models", headers={"host": name}, trust_env=False).status_code


def refused(redis_url: str, *options: str) -> tuple[int, JsonObject]:
    done = subprocess.run(command(redis_url, *options), capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, loads(done.stdout)["error"]


def test_the_blocking_client_and_a_clean_stop(sim_url: str) -> None:
    with running(sim_url, "--open", "--allow-host", "Fleet.LAN") as gateway:
        assert [status_under(gateway, name) for name in ("fleet.lan", "localhost", "evil.example")] == [200, 200, 403]
        client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0)
        stream = client.chat.completions.create(**CHAT, max_tokens=20, stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        whole = client.chat.completions.create(**CHAT, max_tokens=20).choices[0].message.content
        assert client.models.list().data[0].id == MODEL
        client.close()
        gateway.process.send_signal(signal.SIGTERM)
        out, log = gateway.process.communicate(timeout=END_S)
        assert (gateway.process.returncode, out, log) == (0, "", "")
    assert text == whole


def test_a_second_signal_ends_it_at_once(sim_url: str) -> None:
    with running(sim_url, "--open", "--grace", "600") as gateway:
        body = CHAT | {"stream": True, "max_tokens": 30_000, "ignore_eos": True}
        with httpx.stream("POST", f"{gateway.url}/v1/chat/completions", json=body, trust_env=False) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("id:")
            gateway.process.send_signal(signal.SIGTERM)
            while httpx.get(f"{gateway.url}/ready", trust_env=False).status_code != 503:
                pass
            gateway.process.send_signal(signal.SIGTERM)
            out, log = gateway.process.communicate(timeout=END_S)
    assert (gateway.process.returncode, log.strip()) == (130, "interrupted")
    assert loads(out)["error"]["code"] == "interrupted"


def test_without_keys_nobody_is_let_in_by_mistake(valkey_url: str) -> None:
    code, error = refused(valkey_url)
    assert (code, error["code"]) == (2, "setup_error")
    assert "keys create" in error["hint"]


def test_a_port_that_is_taken(valkey_url: str, server: Server) -> None:
    code, error = refused(valkey_url, "--open", "--port", str(server.port))
    assert (code, error["code"]) == (2, "setup_error")
    assert str(server.port) in error["message"]


def test_no_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENFLEET_REDIS_PATIENCE_S", "0.1")
    code, error = refused(f"redis://127.0.0.1:{free_port()}/0", "--open")
    assert (code, error["code"]) == (4, "store_unavailable")


def test_no_request_reaches_the_log(sim_url: str) -> None:
    with running(sim_url, "--open", "--log-level", "debug") as gateway:
        url, key = f"{gateway.url}/v1/chat/completions", {"authorization": f"Bearer {CANARY}"}
        with httpx.Client(trust_env=False, timeout=20, headers=key) as http:
            good = CHAT | {"messages": [{"role": "user", "content": CANARY}], "max_tokens": 3}
            statuses = [
                http.post(url, json=body).status_code
                for body in (
                    good,
                    good | {"stream": True},
                    good | {"messages": CANARY},
                    good | {CANARY: CANARY, "temperature": CANARY},
                    good | {"fleet": {"wait": 0}},
                    [CANARY],
                )
            ]
            statuses.append(http.post(url, content=CANARY).status_code)
            statuses.append(http.get(f"{gateway.url}/v1/requests/{CANARY}").status_code)
            statuses.append(http.get(f"{gateway.url}/{CANARY}").status_code)
        gateway.process.send_signal(signal.SIGTERM)
        out, log = gateway.process.communicate(timeout=END_S)
    assert statuses == [200, 200, 400, 400, 504, 400, 400, 400, 404]
    assert CANARY not in out + log
