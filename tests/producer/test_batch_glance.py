"""A glance at an input is short, however much there is."""

import gzip
from pathlib import Path

import pytest

from producer.batch.service import glance
from producer.batch.service.glance import BYTES_LOOKED_AT, LINES_LOOKED_AT, model_of
from protocol.wire import dumps

ROW = dumps({"body": {"model": "m"}}) + b"\n"


@pytest.mark.parametrize(
    ("before", "found"),
    [
        (b"", "m"),
        (b"\xef\xbb\xbf", "m"),
        (b"no json\n", "m"),
        (b"{}\n" * LINES_LOOKED_AT, ""),
        (b" " * 999 + b"\n", ""),
    ],
)
@pytest.mark.parametrize("name", ["in.jsonl", "in.jsonl.gz"])
def test_a_row_that_names_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, before: bytes, found: str
) -> None:
    monkeypatch.setattr(glance, "BYTES_LOOKED_AT", 1_000 if before.startswith(b" ") else BYTES_LOOKED_AT)
    path, data = tmp_path / name, before + ROW
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    assert model_of(path) == found
