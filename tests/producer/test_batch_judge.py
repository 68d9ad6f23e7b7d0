"""Whatever stands in a batch's input, each line is judged and nothing of it is repeated."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from producer.batch.judge import Judge, Rules, unserved
from producer.batch.lines import LineSplitter
from protocol import wire
from tests.producer.intakes import RULES, row

BOM_BEFORE = f"\ufeff{row('c')}".encode()
LINES = st.lists(
    st.one_of(
        st.binary(max_size=30),
        st.sampled_from(
            [row("a").encode(), row("b").encode(), b"", b" ", b"\xef\xbb\xbf", row(None).encode(), BOM_BEFORE]
        ),
    ),
    max_size=12,
)


@given(LINES, st.sampled_from([b"\n", b"\r\n"]), st.binary(max_size=3))
def test_whatever_the_bytes_every_line_is_judged_under_its_physical_number(
    lines: list[bytes], ending: bytes, prefix: bytes
) -> None:
    data = prefix + ending.join(lines)
    splitter, judge = LineSplitter(1_000), Judge(RULES)
    judged = [judge.judge(line) for line in [*splitter.feed(data), *splitter.end()]]
    physical = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    assert [one.place.number for one in judged] == [n for n, line in enumerate(physical, 1) if line.strip()]
    for one in judged:
        assert (one.problem is not None) is one.place.bad
        if not one.place.bad:
            text = data[one.place.start : one.place.start + one.place.length]
            # As it is read when it is sent.
            assert wire.loads(text)["custom_id"] == one.place.custom_id
            assert physical[one.place.number - 1].removesuffix(b"\r") == text
        else:
            assert one.problem is not None
            assert one.problem.line == one.place.number


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = [
    "model",
    "messages",
    "max_tokens",
    "temperature",
    "seed",
    "n",
    "stop",
    "logit_bias",
    "metadata",
    "stream",
    "prompt",
]


@given(
    st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4),
    st.dictionaries(st.text(max_size=4), VALUES, max_size=2),
)
def test_whatever_the_values_a_row_is_judged_and_its_text_never_repeated(
    body: dict[str, Any], more: dict[str, Any]
) -> None:
    good = {"model": "m", "messages": [{"role": "user", "content": "canary-text"}]}
    data = {"custom_id": "r", "method": "POST", "url": "/v1/chat/completions", "body": {**good, **body}, **more}
    splitter = LineSplitter(1_000_000)
    for line in [*splitter.feed(json.dumps(data).encode()), *splitter.end()]:
        judged = Judge(Rules(1_000, dedup=True)).judge(line)
        assert judged.place.number == 1
        assert "canary" not in (judged.problem.message if judged.problem else "")


def test_a_model_that_nobody_serves_is_named_and_so_are_some_that_are_served() -> None:
    assert unserved("gpt", ["b", "a"]) == "no worker ever registered gpt; known: a, b"
    assert unserved("gpt", []) == "no worker ever registered gpt; nor any other"
    wild = unserved("\x1b[2J\ud800" + "x" * 10_000, [f"{n}" * 256 for n in range(9)])
    assert wild.isprintable()
    assert wild.startswith("no worker ever registered �[2J�xxx")
    assert wild.endswith(" and 4 more")
    assert len(wild) < 500
