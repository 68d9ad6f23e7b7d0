"""Engines by name. A new engine is a file of its own and one line here."""

from collections.abc import Callable
from importlib import import_module
from typing import cast

from protocol.errors import SetupError
from worker.engine.base import Engine
from worker.engine.options import EngineOptions

# As text, so that only the chosen engine's packages are loaded.
ENGINES: dict[str, str] = {
    "sim": "worker.engine.sim.engine",
    "openai": "worker.engine.openai",
    "llama": "worker.engine.llama",
    "vllm": "worker.engine.vllm.engine",
}
"""Name → module with a `from_options(EngineOptions) -> Engine`."""


def create_engine(name: str, options: EngineOptions) -> Engine:
    """Build the engine; nothing is started yet.

    Raises:
        SetupError: no such engine, a package that it needs is missing, or an option is wrong.
    """
    if name not in ENGINES:
        msg = f"unknown engine {name!r}"
        raise SetupError(msg, f"Choose one of: {', '.join(sorted(ENGINES))}.")
    try:
        module = import_module(ENGINES[name])
    except ModuleNotFoundError as error:
        msg = f"the engine {name!r} needs the package {error.name}"
        raise SetupError(msg, "Run: pip install 'tokenfleet[worker]'") from error
    build = cast("Callable[[EngineOptions], Engine]", module.from_options)
    return build(options)
