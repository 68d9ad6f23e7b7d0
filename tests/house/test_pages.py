"""The pages that are made from the code are those that the code makes."""

from pathlib import Path

import pytest

from bench.pages import PAGES


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_as_make_pages_writes_it(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path]()
