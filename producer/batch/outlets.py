"""Where a batch's files stand: the outputs as they were named, and what belongs to them beside them."""

import gzip
import os
import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from producer.batch import state_file
from producer.batch.ledger import Ledger
from producer.batch.output import STANDARD, LineFile, Lines, Output, refuse_in_use, stream
from producer.batch.records import OutFile
from protocol.errors import OutputFailed, SetupError

PACKED = ".gz"
STATE, WORK, SPOOL, FRESH = ".state", ".part", ".input", ".new"
OWN = (STATE, WORK, SPOOL, FRESH, STATE + FRESH, SPOOL + FRESH)


@dataclass(frozen=True, slots=True)
class Outlet:
    """One output, as it was named."""

    path: Path

    @property
    def streams(self) -> bool:
        """Whether what is written there is gone: stdout, a pipe, a device."""
        return str(self.path) == STANDARD or (self.path.exists() and not self.path.is_file())

    @property
    def packed(self) -> bool:
        """Whether it is a gzip file."""
        return self.path.name.endswith(PACKED)

    @property
    def fresh(self) -> Path:
        """Where it is written anew before it is replaced: a symbolic link stays, what it leads to is replaced."""
        real = self.path.resolve()
        return real.with_name(real.name + FRESH)

    def beside(self, ending: str) -> Path:
        """A file that belongs to it."""
        return self.path.with_name(self.path.name + ending)

    def work(self, *, ordered: bool) -> Path:
        """The file that lines are appended to as rows end: the output itself, if it needs neither order nor packing.

        Beside what a symbolic link leads to: whoever writes there by another name finds it in use.
        """
        if not (ordered or self.packed):
            return self.path
        real = self.path.resolve()
        return real.with_name(real.name + WORK)

    def publish(self, lines: Iterable[bytes]) -> None:
        """Write the file anew, whole or not at all; a pipe just gets the lines.

        Raises:
            OutputFailed: it can't be written.
            BrokenPipeError: nobody reads it any more.
        """
        if self.streams:
            target = stream(self.path)
            for line in lines:
                target.append([line])
            return
        fresh = self.fresh
        try:
            with fresh.open("wb") as raw:
                if self.packed:
                    with gzip.GzipFile("", "wb", 6, raw, 0) as packer:
                        packer.writelines(lines)
                else:
                    raw.writelines(lines)
                raw.flush()
                os.fsync(raw.fileno())
            fresh.replace(self.path.resolve())
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise OutputFailed(f"the output can't be written: {error.strerror}") from None

    def unpublish(self, work: Path) -> None:
        """Make the file that lines are appended to from the output again, where that went."""
        fresh = work.with_name(work.name + FRESH)
        with self.path.open("rb") as raw, fresh.open("wb") as copy:
            shutil.copyfileobj(cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if self.packed else raw, copy)
        fresh.replace(work)


@dataclass(frozen=True, slots=True)
class Outlets:
    """A batch's outputs; its state and a spooled input stand beside the first, or in `scratch` where that streams."""

    out: Outlet
    err: Outlet | None
    ordered: bool
    scratch: Path
    """A folder that is gone at the end."""

    @property
    def all(self) -> list[Outlet]:
        """OUT, and ERR where there is one."""
        return [self.out, self.err] if self.err else [self.out]

    @property
    def state(self) -> Path:
        """The ledger's file."""
        return self._own(STATE)

    @property
    def spool(self) -> Path:
        """Where an input is kept that can't be read by places."""
        return self._own(SPOOL)

    @property
    def resumable(self) -> bool:
        """Whether a run that broke off can go on."""
        return not self.out.streams

    def work(self, outlet: Outlet) -> Path | None:
        """Where an output's lines are appended; None: to the stream itself."""
        if outlet.streams:
            return self.scratch / f"{self.all.index(outlet)}{WORK}" if self.ordered else None
        return outlet.work(ordered=self.ordered)

    def check(self, source: str) -> None:
        """Raises where the files can't be used together.

        Raises:
            SetupError: two of them are the same, one is a folder or closed, or its folder is not there.
        """
        self._refuse_same(source)
        for outlet in self.all:
            if str(outlet.path) == STANDARD:
                stream(STANDARD)
            if outlet.path.is_dir():
                raise SetupError(f"{outlet.path} can't be opened: it is a folder")
            if not outlet.streams and not outlet.path.parent.is_dir():
                raise SetupError(f"{outlet.path} can't be opened: its folder is not there")

    def _refuse_same(self, source: str) -> None:
        named = dict(zip(("the output", "the error file"), self.all, strict=False))
        places = [("the input", Path(source)), *((name, outlet.path) for name, outlet in named.items())]
        # An input that is such a file would be deleted or written over, as what an earlier run has kept of a pipe.
        kept = [(name, outlet) for name, outlet in named.items() if not outlet.streams]
        places += [(f"kept beside {name}", outlet.beside(ending)) for name, outlet in kept for ending in OWN]
        places += [(f"kept beside {name}", outlet.work(ordered=True)) for name, outlet in kept]
        seen: dict[Path, str] = {}
        for name, path in places:
            if (
                str(path) != STANDARD
                and not _is_device(path)
                and (other := seen.setdefault(path.resolve(), name)) != name
            ):
                raise SetupError(f"{path} would be {other} and {name}", "Name another file.")

    def refuse_existing(self) -> None:
        """Raises where an output is there already, or one that grows.

        Raises:
            SetupError: one is.
        """
        for outlet in self.all:
            for path in () if outlet.streams else (outlet.path, outlet.work(ordered=self.ordered)):
                # Rows may be done that stand nowhere but in the file that becomes the output at the end.
                if path.exists() and (path == outlet.path or path.stat().st_size):
                    hint = "--resume (resume=True) goes on with it, --overwrite (overwrite=True) replaces it."
                    raise SetupError(f"{path} exists", hint)

    def refuse_in_use(self) -> None:
        """Raises where another batch appends lines to one, as to an error file that both have named.

        Raises:
            SetupError: one does.
        """
        for outlet in self.all:
            work = self.work(outlet)
            for path in {outlet.path, work or outlet.path}:
                if path.is_file():
                    refuse_in_use(path)

    def whole(self, book: Ledger) -> bool:
        """Whether each output of a batch that has completed is there, and none has lost its end."""
        return all(
            outlet.path.exists()
            and (self.work(outlet) != outlet.path or outlet.path.stat().st_size >= book.last_place(file))
            for file, outlet in zip(OutFile, self.all, strict=False)
        )

    def opened(self, stack: ExitStack, *, anew: bool) -> Output:
        """All of them, to append lines to, until the stack unwinds; `anew`: empty.

        Raises:
            SetupError: one can't be opened.
        """
        output = Output([self._opened(outlet, anew=anew) for outlet in self.all])
        stack.callback(output.close)
        return output

    def _opened(self, outlet: Outlet, *, anew: bool) -> Lines:
        work = self.work(outlet)
        if work is None:
            return stream(outlet.path)
        file = LineFile(work, named=work == outlet.path)
        if anew:
            file.cut(0)
        return file

    def remove_work(self) -> None:
        """Delete the files that lines were appended to, where they are not the outputs themselves."""
        for outlet in self.all:
            work = self.work(outlet)
            if work is not None and work != outlet.path:
                work.unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the outputs and all that belongs to them."""
        for outlet in self.all:
            if not outlet.streams:
                for path in (outlet.path.resolve(), outlet.work(ordered=True), outlet.fresh):
                    path.unlink(missing_ok=True)

    @property
    def fresh_state(self) -> Path:
        """The ledger's file until its input is known to be good: an earlier batch's stays so long."""
        return self._own(STATE + FRESH)

    @property
    def fresh_spool(self) -> Path:
        """Likewise."""
        return self._own(SPOOL + FRESH)

    def complete_spool(self) -> None:
        """Finish what a crash has cut off: the state had taken its place, and its input not yet."""
        if self.fresh_spool.is_file() and not (self.spool.exists() or self.fresh_state.exists()):
            self.fresh_spool.replace(self.spool)

    def forget_fresh(self) -> None:
        """Delete the files of a batch that did not begin."""
        state_file.delete(self.fresh_state)
        self.fresh_spool.unlink(missing_ok=True)

    def _own(self, ending: str) -> Path:
        return self.scratch / f"batch{ending}" if self.out.streams else self.out.beside(ending)


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file()
