"""docs/observe.md shows the screens as they are drawn, and lists every check."""

import re
from pathlib import Path

from bench import screens

PACKAGE = Path(__file__).parents[2] / "tokenfleet" / "doctor"
_MADE = re.compile(r'(?:ok|warn|fail)\(\s*"([a-z]+)"')


def test_the_screens_are_as_they_are_drawn() -> None:
    text = screens.PAGE.read_text(encoding="utf-8")
    assert screens.page(text) == text, "run `python -m bench.screens`"


def test_no_screen_is_larger_than_its_terminal() -> None:
    for block in re.findall(r"```text\n(.*?)```", screens.PAGE.read_text(encoding="utf-8"), re.DOTALL):
        assert block.strip()
        assert max(map(len, block.splitlines())) <= screens.WIDTH
    top = screens.page("<!-- screen: top -->\n```text\n```\n")
    assert len(top.splitlines()) - 3 <= screens.HEIGHT


def test_every_check_of_the_doctor_is_explained() -> None:
    made = {check for path in PACKAGE.glob("*.py") for check in _MADE.findall(path.read_text(encoding="utf-8"))}
    page = screens.PAGE.read_text(encoding="utf-8")
    # These two say that the others can't be seen.
    assert {check for check in made - {"config", "server", "fleet"} if f"`{check}`" not in page} == set()
