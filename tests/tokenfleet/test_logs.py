"""Lines of children as people and machines see them."""

import io
import json

from tokenfleet.up.logs import LogView

LINE = (
    '{"role": "worker", "model": "m", "event": "job finished", "level": "info", "timestamp": "2025-01-01T10:00:00.5Z"}'
)


def shown(line: str, *, as_json: bool = False) -> str:
    stream = io.StringIO()
    LogView(as_json=as_json, stream=stream).line("worker-1", line)
    return stream.getvalue()


def test_json_becomes_text_behind_the_name() -> None:
    text = shown(LINE)
    assert text.startswith("worker-1   │ ")
    assert ":00:00.500 [info     ] job finished" in text
    assert "model=m" in text
    assert "role" not in text


def test_machines_get_json_with_the_name() -> None:
    assert json.loads(shown(LINE, as_json=True)) == {"process": "worker-1", **json.loads(LINE)}
    assert json.loads(shown("plain", as_json=True)) == {"process": "worker-1", "event": "plain"}


def test_plain_lines_pass_harmlessly() -> None:
    assert shown("\x1b[2Jcleared") == "worker-1   │ \\x1b[2Jcleared\n"
    assert shown("{not json") == "worker-1   │ {not json\n"
    assert shown("  ") == ""


def test_a_note_says_what_happened() -> None:
    stream = io.StringIO()
    LogView(stream=stream).note("valkey", "ended with code 1; starts again in 0.2 s")
    assert "ended with code 1; starts again in 0.2 s" in stream.getvalue()


def test_the_servers_own_lines_lose_their_head() -> None:
    text = shown("1471:M 29 Nov 2026 18:01:44.734 # Valkey is now ready to exit, bye bye...")
    assert "[info     ] Valkey is now ready to exit, bye bye..." in text
    assert "1471" not in text
    assert shown("1471:M 29 Nov 2026 18:01:40.563 # WARNING Memory overcommit must be enabled!") == ""
