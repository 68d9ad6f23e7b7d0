"""Engines by name, and what choosing one loads."""

import subprocess
import sys

import pytest

from protocol.errors import SetupError
from worker.engine.options import EngineOptions
from worker.engine.registry import ENGINES, create_engine


@pytest.mark.parametrize("name", ENGINES)
def test_each_engine_is_built_without_starting_anything(name: str) -> None:
    engine = create_engine(name, EngineOptions(attach="http://127.0.0.1:1"))
    assert engine.generate is not None


def test_an_unknown_engine_names_the_known_ones() -> None:
    with pytest.raises(SetupError, match="llama, openai, sim"):
        create_engine("gpt", EngineOptions())


def test_the_simulated_engine_loads_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from worker.engine.registry import create_engine\n"
        "from worker.engine.options import EngineOptions\n"
        "create_engine('sim', EngineOptions())\n"
        "print(*({'aiohttp', 'gguf', 'numpy', 'psutil', 'xllamacpp'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(EngineOptions(api_key="secret"))
