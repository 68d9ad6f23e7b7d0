"""The working tree as the house rules see it: files, syntax trees, functions, comments."""

import ast
import io
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("protocol", "producer", "scheduler", "worker", "tokenfleet")
EVERYWHERE = (*PACKAGES, "bench", "tests", "examples")

Function = ast.FunctionDef | ast.AsyncFunctionDef
_LAYOUT = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: Path
    root: Path = ROOT

    @property
    def name(self) -> str:
        """Path from the root, with slashes."""
        return self.path.relative_to(self.root).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.name)

    @property
    def nodes(self) -> Iterator[ast.AST]:
        return ast.walk(self.tree)

    @property
    def functions(self) -> list[Function]:
        return [node for node in self.nodes if isinstance(node, Function)]

    @cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        return list(tokenize.generate_tokens(io.StringIO(self.text).readline))

    @property
    def comments(self) -> list[tuple[int, str]]:
        """Line number and text of each comment."""
        return [(token.start[0], token.string) for token in self.tokens if token.type == tokenize.COMMENT]

    @property
    def code_lines(self) -> int:
        """Lines that hold code: no blank ones, comments or docstrings."""
        held = {
            line
            for token in self.tokens
            if token.type not in _LAYOUT
            for line in range(token.start[0], token.end[0] + 1)
        }
        return len(held - self._docstring_lines)

    @property
    def _docstring_lines(self) -> set[int]:
        texts = [
            node.value for node in self.nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ]
        return {
            line
            for text in texts
            if isinstance(text.value, str)
            for line in range(text.lineno, (text.end_lineno or text.lineno) + 1)
        }

    def at(self, line: int, what: str) -> str:
        """An offender as editors and terminals link it."""
        return f"{self.name}:{line}: {what}"


@cache
def tracked_files() -> tuple[Path, ...]:
    """All files that are in the repository or would be added to it; without git, all that are not hidden."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return tuple(path for path in sorted(ROOT.rglob("*")) if path.is_file() and not _hidden(path))
    paths = [ROOT / name for name in sorted(set(listed.split("\0"))) if name]
    return tuple(path for path in paths if path.is_file())


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "__pycache__")) for part in path.relative_to(ROOT).parts)


@cache
def sources(*folders: str) -> tuple[Source, ...]:
    """The Python files below these folders."""
    return tuple(
        Source(path) for path in tracked_files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders
    )


def report(offenders: list[str]) -> str:
    """What a failing check says: one offender a line."""
    return "\n" + "\n".join(offenders)
