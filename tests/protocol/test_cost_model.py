"""The cost formula against hand-worked figures."""

import pytest

from protocol.cost_model import PROFILES


@pytest.mark.parametrize(
    ("profile", "new_tokens", "decode_kv", "pairs", "expected_ms"),
    [
        ("h100-8b", 1, 1000, 0.0, 7.0 + 0.0195 + 0.049),
        # A prompt of 8,192 tokens: 7 + 159.744 + 1.17e-6 · 8192²/2.
        ("h100-8b", 8192, 0, 8192 * 4096.0, 7.0 + 159.744 + 39.25868544),
        ("a100-8b", 256, 0, 0.0, 9.3 + 11.264),
        ("a100-8b", 300, 0, 0.0, 9.3 + 11.264 + 44 * 0.067),
        ("h100-70b-tp4", 100, 50_000, 0.0, 14.5 + 5.4),
        ("h100-70b-tp8", 100, 50_000, 0.0, 8.5 + 3.1),
        ("instant", 8192, 400_000, 1e9, 0.0),
    ],
)
def test_a_step_costs_what_the_formula_says(
    profile: str, new_tokens: int, decode_kv: int, pairs: float, expected_ms: float
) -> None:
    assert PROFILES[profile].step_ms(new_tokens, decode_kv, pairs) == pytest.approx(expected_ms)


def test_only_instant_is_instant() -> None:
    assert [name for name, profile in PROFILES.items() if profile.instant] == ["instant"]
