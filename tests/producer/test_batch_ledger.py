"""A batch's state file."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from producer.batch.ledger import Ledger
from producer.batch.records import (
    Counts,
    Duplicate,
    Facts,
    LinePlace,
    OutFile,
    RowPlace,
    WrittenLine,
)
from protocol.errors import OutputFailed, Problem, SetupError, Unreadable

FACTS = Facts(batch_id="b1", source="in.jsonl", readable="in.jsonl", state="running", options={"dedup": True})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl.state"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger.create(path) as ledger:
        yield ledger


def row(number: int, cost: int = 1, key: bytes = b"", digest: bytes | None = None, *, bad: bool = False) -> RowPlace:
    return RowPlace(number, 100 * number, 99, f"r{number}", key, cost, digest, bad)


def planned(ledger: Ledger, rows: Sequence[RowPlace], *, group: bool = True, dedup: bool = True) -> list[int]:
    """The lines in the order of sending."""
    ledger.add(rows)
    ledger.plan(group=group, dedup=dedup)
    ledger.set_facts(FACTS)
    return [todo.number for todo in ledger.todo(0, 1_000)]


def line(number: int, start: int, *, failed: bool = False, file: OutFile = OutFile.OUT) -> WrittenLine:
    return WrittenLine(number, failed, file, start, 10, 3, 4, 5, 6, "w1")


def test_an_id_that_an_earlier_line_has_makes_a_line_bad_in_its_block_and_in_later_ones(ledger: Ledger) -> None:
    first = [
        RowPlace(1, 0, 9, "a"),
        RowPlace(2, 10, 9, "a"),
        RowPlace(3, 20, 9, "b"),
        RowPlace(4, 30, 9, None, bad=True),
    ]
    assert ledger.add(first) == [Duplicate(2, 1)]
    assert ledger.add([RowPlace(7, 40, 9, "b"), RowPlace(8, 50, 9, "a"), RowPlace(9, 60, 9, "c")]) == [
        Duplicate(7, 3),
        Duplicate(8, 1),
    ]
    ledger.plan(group=False, dedup=False)
    assert [(todo.number, todo.custom_id) for todo in ledger.todo(0, 99)] == [(1, "a"), (3, "b"), (9, "c")]
    assert [(todo.number, todo.custom_id) for todo in ledger.unfinished(0, 4)] == [(n, None) for n in (2, 4, 7, 8)]


def test_without_groups_rows_are_sent_as_they_stand(ledger: Ledger) -> None:
    assert planned(ledger, [row(5, 9), row(6, 1), row(8, 5)], group=False) == [5, 6, 8]


def test_rows_that_share_a_beginning_stand_together_and_dear_ones_alternate_with_cheap_ones(ledger: Ledger) -> None:
    one, two = b"1" * 8, b"2" * 8
    shared = [row(n, cost=n, key=(one, two)[n % 2] + bytes([n]) * 8) for n in range(1, 9)]
    alone = [row(11, 10), row(12, 30, b"x" * 8), row(13, 20, b"y" * 8)]
    assert planned(ledger, shared + alone) == [12, 11, 13, 8, 2, 6, 4, 7, 1, 5, 3]


def test_the_longest_shared_beginning_makes_the_group(ledger: Ledger) -> None:
    keys = [b"a" * 8 + b"b" * 8 + b"c" * 8, b"a" * 8 + b"d" * 8, b"a" * 8 + b"b" * 8 + b"e" * 8, b"a" * 8 + b"d" * 8]
    assert planned(ledger, [row(n, key=key) for n, key in enumerate(keys, 1)]) == [1, 3, 2, 4]


def test_pages_of_todo_leave_out_what_has_a_line_is_bad_or_is_a_twin(ledger: Ledger) -> None:
    rows = [
        row(1, digest=b"x"),
        row(2, bad=True),
        row(3, digest=b"x"),
        row(4),
        row(5, digest=b"y"),
        row(6, digest=b"x"),
    ]
    assert planned(ledger, rows, group=False) == [1, 4, 5]
    page = ledger.todo(0, 2)
    assert ledger.done([line(4, 0)]) == 1
    assert [todo.number for todo in page] == [1, 4]
    assert [todo.number for todo in ledger.todo(page[-1].place, 2)] == [5]
    assert [todo.number for todo in ledger.todo(0, 9)] == [1, 5]
    assert [(twin.number, twin.twin_of, twin.custom_id) for twin in ledger.twins(1, 0, 9)] == [
        (3, 1, "r3"),
        (6, 1, "r6"),
    ]
    assert [twin.number for twin in ledger.twins(1, 3, 9)] == [6]


def test_a_page_of_many_twins_costs_what_it_holds(ledger: Ledger) -> None:
    """A million equal rows would take an hour if each page looked at all of them."""
    planned(ledger, [row(n, digest=b"x") for n in range(1, 4_001)])
    steps: list[int] = []
    ledger._db.set_progress_handler(lambda: steps.append(1), 10)
    assert [twin.number for twin in ledger.twins(1, 0, 10)] == list(range(2, 12))
    assert [twin.number for twin in ledger.twins(1, 3_000, 10)] == list(range(3_001, 3_011))
    assert len(steps) < 200


def test_twins_are_stranded_when_only_their_original_has_its_line(ledger: Ledger) -> None:
    planned(ledger, [row(n, digest=b"x") for n in (1, 2, 3)])
    assert ledger.stranded(0, 9) == []
    ledger.done([line(1, 0), line(2, 10)])
    assert [todo.number for todo in ledger.stranded(0, 9)] == [3]


def test_the_twins_of_a_bad_line_run(ledger: Ledger) -> None:
    assert planned(ledger, [row(1, digest=b"x", bad=True), row(2, digest=b"x"), row(3, digest=b"x")]) == [2]


def test_a_line_counts_once(ledger: Ledger) -> None:
    planned(ledger, [row(1), row(2), row(3, bad=True)])
    assert ledger.done([line(1, 0), line(3, 10, failed=True, file=OutFile.ERR)]) == 2
    assert ledger.done([line(1, 50, failed=True)]) == 0
    assert ledger.counts() == Counts(rows=3, answered=1, failed=1, bad=1, twins=0, deduped=0, tokens_in=6, tokens_out=8)
    assert ledger.counts().waiting == 1
    assert list(ledger.places(OutFile.OUT, "file")) == [LinePlace(1, 0, 10)]
    assert ledger.last_place(OutFile.ERR) == 20
    assert list(ledger.waits("queue_ms")) == [(5, 2)]


def test_places_come_in_either_order(ledger: Ledger) -> None:
    planned(ledger, [row(1), row(2), row(3)])
    ledger.done([line(3, 0), line(1, 10), line(2, 20)])
    assert [place.number for place in ledger.places(OutFile.OUT, "input")] == [1, 2, 3]
    assert [place.number for place in ledger.places(OutFile.OUT, "file")] == [3, 1, 2]


def test_a_file_that_was_opened_again_knows_all(ledger: Ledger, path: Path) -> None:
    problem = Problem(2, "invalid_json_line", "not UTF-8", None, "r2")
    ledger.set_problems([problem])
    planned(ledger, [row(1), row(2, bad=True), row(3)])
    ledger.done([line(3, 0)])
    ledger.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with Ledger.open(path) as again:
        assert again.facts() == FACTS
        assert again.problems(0, 9) == [problem]
        assert [todo.number for todo in again.todo(0, 9)] == [1]
        assert [(todo.number, todo.bad) for todo in again.rows([3, 2, 77])] == [(2, True), (3, False)]
        assert again.jobs_by_worker() == {"w1": 1}


def test_lines_that_a_power_cut_took_wait_again(ledger: Ledger) -> None:
    planned(ledger, [row(1), row(2), row(3)])
    ledger.done([line(1, 0), line(2, 10), line(3, 10, file=OutFile.ERR)])
    assert ledger.cut(OutFile.OUT, 19) == 1
    # Its job may still be in Redis, under the id that it had.
    assert [(todo.number, todo.generation) for todo in ledger.todo(0, 9)] == [(2, 0)]
    assert ledger.last_place(OutFile.OUT) == 10
    assert ledger.counts().tokens_in == 6


def test_failed_rows_wait_again_as_their_next_generation_and_the_others_move(ledger: Ledger) -> None:
    planned(ledger, [row(1), row(2), row(3, bad=True)])
    ledger.done([line(2, 0, failed=True), line(1, 10), line(3, 20, failed=True)])
    assert ledger.retry_failed() == 1
    assert [(todo.number, todo.generation) for todo in ledger.todo(0, 9)] == [(2, 1)]
    ledger.move(OutFile.OUT, [LinePlace(1, 0, 10), LinePlace(3, 10, 10)])
    assert list(ledger.places(OutFile.OUT, "file")) == [LinePlace(1, 0, 10), LinePlace(3, 10, 10)]


def test_two_runs_never_share_a_file(ledger: Ledger, path: Path) -> None:
    planned(ledger, [row(1)])
    for begin in (Ledger.open, Ledger.create):
        with pytest.raises(SetupError, match="in use"):
            begin(path)
    assert [todo.number for todo in ledger.todo(0, 9)] == [1]


def test_a_file_that_is_none_or_not_planned_can_not_be_resumed(path: Path) -> None:
    with pytest.raises(SetupError, match="not there"):
        Ledger.open(path)
    with Ledger.create(path) as begun:
        begun.add([row(1)])
        begun.set_facts(replace(FACTS, state="validating"))
    with pytest.raises(SetupError, match="not validated"):
        Ledger.open(path)
    path.write_bytes(b"{}\n" * 4_000)
    with pytest.raises(Unreadable):
        Ledger.open(path)
    path.unlink()
    with closing(sqlite3.connect(path)) as another:
        another.executescript("PRAGMA user_version = 1; CREATE TABLE songs (name TEXT)")
    with pytest.raises(Unreadable, match="no state file of a batch"):
        Ledger.open(path)
    with Ledger.create(path) as anew:
        assert planned(anew, [row(1)]) == [1]


def test_a_full_disk_is_told_and_what_was_kept_before_stands(ledger: Ledger, path: Path) -> None:
    planned(ledger, [row(1), row(2)])
    ledger.done([line(1, 0)])
    # SQLite's own words for a file that may not grow.
    ledger._db.execute("PRAGMA max_page_count = 1")
    huge = [Problem(n, "code", "x" * 4_000) for n in range(1, 200)]
    with pytest.raises(OutputFailed, match="full"):
        ledger.set_problems(huge)
    assert ledger.problems(0, 9) == []
    ledger.close()
    with Ledger.open(path) as again:
        assert [todo.number for todo in again.todo(0, 9)] == [2]
        again.set_problems(huge)


def test_a_process_that_was_killed_leaves_what_it_had_committed(path: Path) -> None:
    code = (
        "import os, sys\n"
        "from producer.batch.ledger import Ledger\n"
        "from producer.batch.records import Facts, OutFile, RowPlace, WrittenLine\n"
        "ledger = Ledger.create(sys.argv[1])\n"
        "ledger.add([RowPlace(n, 0, 1, f'r{n}') for n in range(1, 6)])\n"
        "ledger.plan(group=False, dedup=False)\n"
        "ledger.set_facts(Facts(batch_id='b', source='s', readable='s', state='running'))\n"
        "ledger.done([WrittenLine(n, False, OutFile.OUT, 10 * n, 10) for n in (1, 3)])\n"
        "os._exit(9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=60)
    assert done.returncode == 9
    with Ledger.open(path) as ledger:
        assert [todo.number for todo in ledger.todo(0, 9)] == [2, 4, 5]


def test_a_process_that_was_killed_while_it_planned_begins_anew(path: Path) -> None:
    with Ledger.create(path) as begun:
        begun.add([row(1)])
        begun.set_facts(replace(FACTS, state="validating"))
        begun._db.execute("DETACH DATABASE intake")
    path.with_name(f"{path.name}-intake").write_bytes(b"torn")
    with Ledger.create(path) as ledger:
        assert planned(ledger, [row(1), row(2)]) == [1, 2]


KEYS = st.lists(st.sampled_from([b"a" * 8, b"b" * 8, b"c" * 8]), max_size=4).map(b"".join)
ROWS = st.lists(
    st.tuples(KEYS, st.integers(0, 5), st.sampled_from([None, b"x", b"y"]), st.booleans(), st.sampled_from("abcdef")),
    max_size=20,
)


@given(ROWS, st.booleans(), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_each_row_is_sent_once_or_is_bad_or_the_twin_of_one_that_is_sent(
    path: Path, rows: list[tuple[bytes, int, bytes | None, bool, str]], group: bool, dedup: bool
) -> None:
    with Ledger.create(path) as ledger:
        places = [
            RowPlace(n, n, 1, name, key, cost, same, bad) for n, (key, cost, same, bad, name) in enumerate(rows, 1)
        ]
        duplicates = {one.number for one in ledger.add(places)}
        ledger.plan(group=group, dedup=dedup)
        todos = {todo.number: todo for todo in ledger.unfinished(0, 99)}
        sent = [todo.number for todo in ledger.todo(0, 99)]
        assert sorted(todo.place for todo in todos.values()) == list(range(1, len(rows) + 1))
        assert sorted(todos) == [place.number for place in places]
        names = [todo.custom_id for todo in todos.values() if todo.custom_id]
        assert len(names) == len(set(names)) == len({name for *_, name in rows})
        for place in places:
            todo = todos[place.number]
            assert todo.bad is (place.bad or place.number in duplicates)
            if todo.twin_of:
                assert dedup
                assert todo.twin_of in sent
                assert places[todo.twin_of - 1].digest == place.digest is not None
            assert (place.number in sent) is not (todo.bad or todo.twin_of is not None)
        if not group:
            assert sent == sorted(sent)
