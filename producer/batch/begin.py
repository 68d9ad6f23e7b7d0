"""The first part of a run: the input is taken in, or the state of a run that broke off is."""

import asyncio
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from producer.batch import intake
from producer.batch.judge import Rules
from producer.batch.ledger import Ledger
from producer.batch.options import BatchOptions
from producer.batch.outlets import Outlets
from producer.batch.records import Facts
from producer.batch.resume import RUNNING, check_judged, check_options
from producer.batch.source import check_piped, check_unchanged, repeatable
from producer.batch.state_file import refuse_in_use
from producer.batch.threads import in_thread
from producer.fleet import Fleet
from protocol.errors import SetupError


async def begin(
    fleet: Fleet,
    source: str,
    outlets: Outlets,
    options: BatchOptions,
    cancel: asyncio.Event | None,
    on_lines: Callable[[int], None],
) -> tuple[Ledger, bool]:
    """The batch's ledger, with all rows planned; and whether it was there already. Close it.

    Once `cancel` is set, its rows are only found, for the lines that say so: they are not judged any more.

    Raises:
        SetupError: files can't be opened, are there already, or belong to another batch; or the input has changed.
        BatchInvalid: it has lines that are no requests; nothing was run.
    """
    cancelled = cancel.is_set if cancel else lambda: False
    if options.resume and not outlets.resumable:
        raise SetupError("a batch that was written to a pipe can't be resumed", "Name a file as its output.")
    outlets.check(source)
    if options.resume and outlets.state.is_file():
        stop = threading.Event()
        work = partial(resumed, source, outlets, options, cancelled, stop.is_set)
        return await in_thread(work, stop, Ledger.close), True
    if options.resume and outlets.out.path.exists():
        raise SetupError(f"{outlets.state} is not there", f"Without it {outlets.out.path} can't be gone on with.")
    if not options.overwrite:
        outlets.refuse_existing()
    return await _new(fleet, source, outlets, options, cancelled, on_lines), False


def resumed(
    source: str,
    outlets: Outlets,
    options: BatchOptions,
    cancelled: Callable[[], bool],
    stopped: Callable[[], bool],
) -> Ledger:
    """The ledger of a batch that was begun; once `stopped`, a pipe is waited for no longer.

    Raises:
        SetupError: it can't be gone on with, or not like this.
    """
    book = Ledger.open(outlets.state)
    try:
        outlets.complete_spool()
        facts = book.facts()
        if not cancelled():
            check_judged(facts)
        check_options(facts, options.fixed(outlets.err and outlets.err.path))
        check_unchanged(facts, source)
        if not repeatable(Path(source)):
            check_piped(facts, source, lambda: stopped() or cancelled())
        if options.deadline is not None:
            book.set_facts(replace(facts, deadline_ms=options.deadline_ms()))
    except BaseException:
        book.close()
        raise
    return book


async def _new(
    fleet: Fleet,
    source: str,
    outlets: Outlets,
    options: BatchOptions,
    cancelled: Callable[[], bool],
    on_lines: Callable[[int], None],
) -> Ledger:
    """What an earlier batch has left is replaced once the input is known to be good, and its rows are planned."""
    refuse_in_use(outlets.state)
    models = [name for name in await fleet.models() if name in (options.models or (name,))]
    book = Ledger.create(outlets.fresh_state)
    try:
        rules = Rules(fleet.settings.max_body_bytes, options.model, options.endpoint, options.dedup, models)
        spool, limit = outlets.fresh_spool, options.limit
        taken = await intake.take_in(
            source, book, rules, spool=spool, limit=limit, cancelled=cancelled, on_lines=on_lines
        )
        _accept(taken, book, options)
        await in_thread(lambda: book.plan(group=not cancelled(), dedup=options.dedup))
        book.set_facts(_facts(source, outlets, options, taken))
        if not options.overwrite:
            outlets.refuse_existing()  # Another run may have come and gone meanwhile.
        outlets.refuse_in_use()
        book = await in_thread(lambda: _replace(book, outlets), undo=Ledger.close)
    except BaseException:
        book.close()
        outlets.forget_fresh()
        raise
    if options.overwrite:
        outlets.remove()
    return book


def _replace(book: Ledger, outlets: Outlets) -> Ledger:
    """At no moment would the rows of one batch be read from the input of another; nor does one lose what it reads."""
    refuse_in_use(outlets.state)
    outlets.spool.unlink(missing_ok=True)
    moved = book.moved(outlets.state)
    if outlets.fresh_spool.exists():
        outlets.fresh_spool.replace(outlets.spool)
    return moved


def _accept(taken: intake.Intake, book: Ledger, options: BatchOptions) -> None:
    """Raises where nothing may be run."""
    if refusal := intake.refusal(taken, book, skip=options.on_invalid == "skip"):
        raise refusal


def _facts(source: str, outlets: Outlets, options: BatchOptions, taken: intake.Intake) -> Facts:
    return Facts(
        batch_id=options.batch_id or f"batch-{secrets.token_hex(6)}",
        source=source,
        readable=str(outlets.spool) if taken.readable == str(outlets.fresh_spool) else taken.readable,
        size=taken.size,
        mtime_ns=taken.mtime_ns,
        sha256=taken.sha256,
        rows=taken.rows,
        bad=taken.bad,
        endpoint=taken.endpoint,
        model=taken.model,
        judged=taken.judged,
        options=options.fixed(outlets.err and outlets.err.path),
        state=RUNNING,
        created_ms=time.time_ns() // 1_000_000,
        deadline_ms=options.deadline_ms(),
    )
