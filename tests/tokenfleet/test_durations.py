"""Durations as people write them."""

import pytest
from click import BadParameter

from tokenfleet.cli.durations import in_words, long_duration, seconds_of, speed


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0.5", 0.5),
        ("90s", 90),
        ("250ms", 0.25),
        ("5m", 300),
        ("6H", 21_600),
        ("1h30m", 5400),
        ("2d", 172_800),
    ],
)
def test_they_are_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "5 m", "-3s", "1h?", "nan", "inf"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        seconds_of(text)


@pytest.mark.parametrize("text", ["6", " 90 ", "0.5"])
def test_what_lasts_needs_its_unit(text: str) -> None:
    """`--deadline 6` was six seconds, where hours were meant."""
    with pytest.raises(BadParameter, match=f"{text.strip()} of what"):
        long_duration(text)
    assert long_duration("6h") == seconds_of("6h")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.042, "42 ms"), (1.42, "1.4 s"), (11.6, "12 s"), (180, "3 min"), (7560, "2.1 h")]
)
def test_they_are_shown(seconds: float, text: str) -> None:
    assert in_words(seconds) == text


@pytest.mark.parametrize(
    ("a_second", "text"), [(0, "0.0"), (0.0042, "0.0042"), (0.147, "0.15"), (1.26, "1.3"), (2530, "2,530.0")]
)
def test_speeds_are_shown(a_second: float, text: str) -> None:
    assert speed(a_second) == text
