"""The gate for known vulnerabilities, against a database of the test's own, and the page of licences."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from bench import audit, licences
from tests.house.tree import ROOT
from tests.support.servers import free_port

Answer = Callable[[list[dict[str, Any]]], Any]


@pytest.fixture
def database() -> Iterator[Callable[[Answer], str]]:
    """Starts one that answers a list of queries as the test says; its URL."""
    servers: list[HTTPServer] = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
                body = json.dumps(answer(queries)).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def run(url: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, the JSON object, what people see."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.audit", "--json"],
        cwd=ROOT,
        env=os.environ | {audit.DATABASE_VARIABLE: url},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_every_pinned_package_is_asked_for_and_what_is_known_fails_the_gate(database: Callable[[Answer], str]) -> None:
    asked: list[dict[str, Any]] = []

    def answer(queries: list[dict[str, Any]]) -> Any:
        asked.extend(queries)
        return {"results": [{"vulns": [{"id": "X-1"}]} if q["package"]["name"] == "aiohttp" else {} for q in queries]}

    code, told, shown = run(database(answer))
    version = dict(audit.pins("run"))["aiohttp"]
    assert (code, told["reached"], told["found"]) == (audit.FOUND, True, {f"aiohttp=={version}": ["X-1"]})
    assert "X-1" in shown
    names = {(query["package"]["name"], query["version"]) for query in asked}
    assert names == {pin for lock in audit.LOCKS for pin in audit.pins(lock)}
    assert {query["package"]["ecosystem"] for query in asked} == {"PyPI"}


def test_nothing_known_is_clean(database: Callable[[Answer], str]) -> None:
    code, told, _ = run(database(lambda queries: {"results": [{} for _ in queries]}))
    assert (code, told["reached"], told["found"]) == (audit.CLEAN, True, {})


@pytest.mark.parametrize("answer", [lambda _: {"results": []}, lambda _: {}, lambda _: []])
def test_an_odd_answer_is_no_answer(database: Callable[[Answer], str], answer: Answer) -> None:
    code, told, shown = run(database(answer))
    assert (code, told["reached"]) == (audit.UNKNOWN, False)
    assert "NOT CHECKED" in shown


def test_a_database_that_is_away_is_told_and_never_taken_for_clean() -> None:
    code, told, shown = run(f"http://127.0.0.1:{free_port()}/")
    assert (code, told["reached"]) == (audit.UNKNOWN, False)
    assert "NOT CHECKED" in shown


def test_the_page_of_licences_is_that_of_the_lock_files() -> None:
    assert licences.PAGE.read_text() == licences.page(), "run `make licences`"


def test_what_only_some_pythons_install_is_listed_alike_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As async-timeout, which Debian's Python 3.11.2 has."""
    page, licence_of = licences.page(), licences.licence_of
    some = licences.for_some_pythons("run")
    assert "async-timeout" in some
    monkeypatch.setattr(licences, "licence_of", lambda name: "MIT" if name in some else licence_of(name))
    assert licences.page() == page


def test_every_package_tells_its_licence() -> None:
    silent = [name for lock in audit.LOCKS for name, _ in audit.pins(lock) if licences.licence_of(name) == "not told"]
    assert silent == []


def test_nothing_that_users_install_makes_them_publish_their_own_code() -> None:
    strict = [name for name, _ in audit.pins("run") if "GPL" in licences.licence_of(name)]
    assert strict == []
