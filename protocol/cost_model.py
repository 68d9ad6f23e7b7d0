"""What a step costs on known hardware: fitted constants, and the formula over them.

The simulated engine takes so long; the dispatcher predicts with it, and learns how fast each worker really is.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """Constants of the cost formula (ms, tokens) and the KV capacity of one engine."""

    base_ms: float
    """`a`: what every step costs."""
    token_ms: float
    """`b`: for each new token of a step, prefill or decode."""
    decode_kv_ms: float = 0.0
    """`κ`: for each KV token that decoding reads."""
    attention_ms: float = 0.0
    """`c`: for each pair of a new prefill token and a token that it attends to."""
    knee_tokens: int = 0
    """Where `b` changes; 0 when it does not."""
    token_ms_past_knee: float = 0.0
    kv_tokens: int = 430_000

    @property
    def instant(self) -> bool:
        """True when no step takes any time."""
        return not (self.base_ms or self.token_ms)

    def step_ms(self, new_tokens: int, decode_kv_tokens: int, attention_pairs: float) -> float:
        """Duration of one step: a + b·new + κ·Σ decode KV + c·Σ nᵢ(contextᵢ + nᵢ/2).

        Args:
            new_tokens: prefill and decode tokens computed in the step.
            decode_kv_tokens: Σ of the contexts of the sequences that decode.
            attention_pairs: Σ nᵢ(contextᵢ + nᵢ/2) over the prefill chunks: n new tokens after a context.
        """
        past_knee = max(0, new_tokens - self.knee_tokens) if self.knee_tokens else 0
        return (
            self.base_ms
            + self.token_ms * (new_tokens - past_knee)
            + self.token_ms_past_knee * past_knee
            + self.decode_kv_ms * decode_kv_tokens
            + self.attention_ms * attention_pairs
        )


PROFILES: dict[str, Profile] = {
    "h100-8b": Profile(7.0, 0.0195, decode_kv_ms=4.9e-5, attention_ms=1.17e-6),
    "a100-8b": Profile(9.3, 0.044, decode_kv_ms=8.0e-5, knee_tokens=256, token_ms_past_knee=0.067),
    # KV of a 70B model: (0.9 · 80 GB · devices − 141 GB of weights) / 327,680 bytes a token.
    "h100-70b-tp4": Profile(14.5, 0.054, kv_tokens=448_000),
    "h100-70b-tp8": Profile(8.5, 0.031, kv_tokens=1_327_000),
    "instant": Profile(0.0, 0.0),
}
"""Profiles by name; `instant` answers at once and serves benchmarks of everything but the engine."""
