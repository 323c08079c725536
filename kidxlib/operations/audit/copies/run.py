"""Compares the copy of a log dir with the catalog, from the options to what is shown."""

from __future__ import annotations

from typing import Final

from kidxlib.catalog.results.audit import COMPARED
from kidxlib.engine.work import Work
from kidxlib.errors import UsageError
from kidxlib.operations.audit.copies.compare_work import compare_copies
from kidxlib.operations.audit.copies.report import Compared, show, show_json
from kidxlib.operations.audit.copies.request import CopyRequest
from kidxlib.operations.audit.copies.to_compare import ToCompare
from kidxlib.operations.backend import Backend, OpenBackend
from kidxlib.run.result import RunResult
from kidxlib.storage.store.client import connect
from kidxlib.storage.store.heads import ensure_any_object
from kidxlib.terminal import interrupts
from kidxlib.terminal.progress import begin_phase
from kidxlib.text.counted import counted

#: Of a log one could read so much in the time that the processor takes for a HEAD.
_HEAD_BYTES: Final = 65_536


def run_copies(request: CopyRequest, open_backend: OpenBackend, *, as_json: bool) -> RunResult:
    """Ask the store for each segment's object, compare what it says with the catalog, and show what came of it. Nothing
    is written.

    Raises:
        CatalogError: the catalog cannot be read.
        UsageError: it has no such segments; there is no object with the prefix, or the store refuses or cannot be
            reached.
        NoAnswerError: the store stops answering.
        Interrupted: the run is.
    """
    with open_backend() as backend:
        compared = _compared(request, backend)
        (show_json if as_json else show)(request, compared, backend.catalog.path)
    return compared.result(request)


def _compared(request: CopyRequest, backend: Backend) -> Compared:
    tables, path, engine = backend.catalog.tables.for_workers(), backend.catalog.path, backend.engine
    if tables is None:
        raise UsageError(
            f"--copy: Spark alone reaches the catalog {path}, and executors cannot; "
            "name a catalog in a directory or at s3://"
        )
    begin_phase("reading the catalog")
    to_compare = ToCompare.of(request, tables, path)
    try:
        ensure_any_object(connect(), request.copy)
    except OSError as error:
        raise UsageError(f"--copy {request.copy}: {error}") from error
    units = [[share] for share in to_compare.shares(request.copy, engine.cores)]
    bytes_ = to_compare.segments * _HEAD_BYTES
    work = Work(f"{request.context.run_id()}-copies", units, compare_copies, COMPARED, bytes=bytes_)
    if not work.is_small:
        engine.start()

    def asked_so_far() -> str:
        of_all = f"{engine.done().segments:,} of {counted(to_compare.segments, 'segment')} compared"
        return f"{of_all}, and none reported; run the same command again"

    begin_phase("asking the store", done=engine.done, segments=to_compare.segments, after="counting")
    with interrupts.telling(asked_so_far), engine.stopping():
        staged = engine.run(work)
        interrupts.raise_if_requested()
    begin_phase("counting")
    return Compared.of(staged, to_compare.source, request.context.asked(engine.requests()))
