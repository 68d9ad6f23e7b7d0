"""What real models are served with."""

import pytest

from bench.vllm_env.models import quick_dtype


@pytest.mark.parametrize(
    ("cpu", "dtype"),
    [("flags : fma avx2 avx512f avx512_bf16 amx_bf16", "bfloat16"), ("flags : fma avx2 bmi2", "float32")],
)
def test_vllm_computes_in_the_type_that_the_processor_is_quick_in(cpu: str, dtype: str) -> None:
    assert quick_dtype(cpu) == dtype
