"""Traces are read by what they look like, and generated ones stand in for those that are missing."""

from itertools import pairwise
from pathlib import Path

import pytest

from protocol.errors import SetupError
from tokenfleet.simulate import traces
from tokenfleet.simulate.generated import Row

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:47.1805900,0,0
"""
SERVEGEN = "timestamp_ms,client,input_length,output_length\n1500,7,10,20\n1000,7,30,40\n"
MOONCAKE = "".join(
    f'{{"timestamp": {at}, "input_length": {tokens}, "output_length": 5, "hash_ids": [{ids}]}}\n'
    for at, tokens, ids in [(0, 1024, "1, 2"), (0, 600, "1, 3"), (0, 10, "4"), (3000, 10, "5"), (3000, 10, "6")]
)


def rows_of(folder: Path, text: str) -> tuple[Row, ...]:
    path = folder / "trace"
    path.write_text(text, encoding="utf-8")
    return traces.read(path).rows


def test_azure(tmp_path: Path) -> None:
    first, second = rows_of(tmp_path, AZURE)
    assert (first.at_ms, first.prompt_tokens, first.output_tokens) == (0, 374, 44)
    assert second.at_ms == pytest.approx(500)
    assert (second.prompt_tokens, second.output_tokens) == (1, 1)


def test_servegen(tmp_path: Path) -> None:
    assert rows_of(tmp_path, SERVEGEN) == (Row(0, 30, 40), Row(500, 10, 20))


def test_mooncakes_steps_are_spread_evenly(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, MOONCAKE)
    assert [row.at_ms for row in rows] == [0, 1000, 2000, 3000, 4500]
    assert rows[1].blocks == (1, 3)


SERVEGEN_HEAD = "timestamp_ms,input_length,output_length\n"


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", '{"timestamp": 1}\n', AZURE.replace("374", "x"), "{\n"])
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SetupError, match="trace"):
        rows_of(tmp_path, text)


@pytest.mark.parametrize(
    "rows", ["nan,5,5\n", "inf,5,5\n", "-1e308,5,5\n", "0,5,5\n1e14,5,5\n", f'0,5,5,"{"x" * 200_000}"\n']
)
def test_times_that_are_none_and_fields_without_end_are_refused(tmp_path: Path, rows: str) -> None:
    (tmp_path / "t").write_text(SERVEGEN_HEAD + rows)
    with pytest.raises(SetupError):
        traces.read(tmp_path / "t")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="can't be read"):
        traces.load(str(tmp_path / "nothing.csv"))


def test_a_published_trace_comes_from_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACES", str(tmp_path))
    (tmp_path / traces.PUBLISHED["azure"].file).write_text(AZURE, encoding="utf-8")
    trace = traces.load("azure")
    assert (trace.name, len(trace.rows), trace.missing) == ("azure", 2, "")


def test_a_published_trace_is_found_here_and_beside_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRACES", raising=False)
    here, beside = tmp_path / "checkout", tmp_path / "data" / "traces"
    here.mkdir()
    beside.mkdir(parents=True)
    monkeypatch.chdir(here)
    assert "traces/azure" in traces.load("azure").missing
    (beside / traces.PUBLISHED["azure"].file).write_text(AZURE, encoding="utf-8")
    assert traces.load("azure").name == "azure"
    (here / "traces").mkdir()
    (here / "traces" / traces.PUBLISHED["azure"].file).write_text(AZURE, encoding="utf-8")
    assert traces.found("TRACES", "traces", traces.PUBLISHED["azure"].file).parent == Path("traces")


@pytest.mark.parametrize("name", sorted(traces.PUBLISHED))
def test_a_generated_one_stands_in_and_says_so(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACES", str(tmp_path))
    trace = traces.load(name)
    assert "GENERATED" in trace.name
    assert traces.PUBLISHED[name].source in trace.missing
    assert len(trace.rows) > 10_000
    assert all(row.prompt_tokens > 0 and row.output_tokens > 0 for row in trace.rows)


def test_a_generated_trace_goes_by_its_seed_and_shares_prefixes() -> None:
    one, same, other = (traces.load("generated", seed) for seed in (0, 0, 1))
    assert one.rows == same.rows
    assert one.rows != other.rows
    assert all(before.at_ms <= after.at_ms for before, after in pairwise(one.rows))
    blocks = [block for row in one.rows for block in row.blocks]
    assert len(set(blocks)) < 0.9 * len(blocks)
    assert all(len(row.blocks) == row.prompt_tokens // one.block_tokens for row in one.rows)


def test_a_scale_makes_it_faster_and_nothing_else() -> None:
    trace = traces.load("generated")
    slow, fast = trace.requests(1.0), trace.requests(4.0)
    assert [one.at_ms for one in fast] == [pytest.approx(one.at_ms / 4) for one in slow]
    assert [one.prompt_tokens for one in fast] == [one.prompt_tokens for one in slow]
