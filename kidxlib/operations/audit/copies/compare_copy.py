"""Compares the copy of a log dir with the catalog, from the options to its exit code and what is shown."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kidxlib.audit.copies import NOT_COMPARABLE, PROBLEMS, CopyVerdict
from kidxlib.catalog.results import COMPARED, CopiesRow, CopyRow
from kidxlib.engine.staged import Staged
from kidxlib.engine.work import Work
from kidxlib.errors import UsageError
from kidxlib.operations.audit.copies.compare_work import ToCompare, compare_copies
from kidxlib.operations.audit.copies.copy_request import CopyRequest
from kidxlib.operations.backend import Backend, OpenBackend
from kidxlib.run.result import RunResult
from kidxlib.storage.store.client import connect, ensure_any_object
from kidxlib.storage.store.requests import Requests
from kidxlib.terminal import interrupts
from kidxlib.terminal.audit import SHOWN
from kidxlib.terminal.build import print_requests
from kidxlib.terminal.console import print_json, print_line, print_more, warn
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.progress import begin_phase
from kidxlib.terminal.tables import print_table
from kidxlib.text.words import counted

#: Segments whose copies are asked for sooner than workers start: the processor takes a millisecond for a HEAD.
_FEW_SEGMENTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Compared:
    """What was found.

    Attributes:
        staged: rows of `COMPARED`.
        counts: of each verdict that some copy has.
        requests: of the store.
    """

    staged: Staged
    source: str
    counts: Mapping[CopyVerdict, CopiesRow]
    requests: Requests

    @classmethod
    def of(cls, staged: Staged, source: str, requests: Requests) -> Compared:
        """Count what workers have staged."""
        rows = staged.rows("count").group_by("verdict")
        names = ("segments", "log_bytes")
        sums = rows.aggregate([(name, "sum") for name in names]).rename_columns(["verdict", *names])
        counts = {CopyVerdict(row.verdict): row for row in CopiesRow.of_arrow(sums)}
        return cls(staged, source, counts, requests)

    def segments(self, *verdicts: CopyVerdict) -> int:
        """How many copies have one of some verdicts."""
        return sum(self.counts[verdict].segments for verdict in verdicts if verdict in self.counts)

    def rows(self, kind: str) -> Iterator[CopyRow]:
        """The copies of one kind, one by one and in order."""
        for batch in self.staged.batches(kind):
            yield from CopyRow.of_arrow(batch)

    def result(self, request: CopyRequest) -> RunResult:
        """How the run ended."""
        fails = self.segments(*PROBLEMS) or (request.require_checksums and self.segments(*NOT_COMPARABLE))
        return RunResult(
            code=ExitCode.PROBLEMS_FOUND if fails else ExitCode.OK,
            counts={
                "segments": self.segments(*CopyVerdict),
                **{verdict.value.replace("-", "_"): self.segments(verdict) for verdict in CopyVerdict},
            },
            bytes=sum(row.log_bytes for row in self.counts.values()),
            requests=self.requests,
        )


def show_json(request: CopyRequest, compared: Compared, catalog: str) -> None:
    """Print the JSON object.

    Args:
        catalog: where that is.
    """
    print_json(
        {
            "copy": str(request.copy),
            "source": compared.source,
            "catalog": catalog,
            "segments": {verdict.value: compared.segments(verdict) for verdict in CopyVerdict},
            "requests": compared.requests.as_json(),
            "problems": [_as_json(row) for row in compared.rows("problem")],
            "not_comparable": [_as_json(row) for row in compared.rows("unknown")],
        }
    )


def _as_json(row: CopyRow) -> dict[str, Any]:
    return {name: value for name, value in row.values().items() if name != "source"}


def show(request: CopyRequest, compared: Compared, catalog: str) -> None:
    """Print what was found, problems first.

    Args:
        catalog: where that is.
    """
    print_table(
        f"copy of {compared.source} at {request.copy}",
        ("verdict", "segments", "bytes of logs"),
        [
            (
                verdict.value,
                compared.segments(verdict),
                compared.counts[verdict].log_bytes if verdict in compared.counts else 0,
            )
            for verdict in CopyVerdict
        ],
        text_columns=1,
    )
    for kind, verdicts in (("problem", PROBLEMS), ("unknown", NOT_COMPARABLE)):
        for row in itertools.islice(compared.rows(kind), SHOWN):
            print_line(f"{row.verdict}: {row.object}: {row.detail}")
        print_more(compared.segments(*verdicts) - SHOWN, "; --json has them all")
    print_line("as-uploaded: the store got the log's bytes when the object was written; none was read back now")
    print_requests(compared.requests)
    print_line(f"catalog:     {catalog}, source {compared.source}")
    if (unknown := compared.segments(*NOT_COMPARABLE)) and not request.require_checksums:
        of_all = f"{unknown:,} of {counted(compared.segments(*CopyVerdict), 'segment')}"
        warn(f"{of_all} cannot be compared: nothing is known of their copies; --require-checksums makes that exit 3")


def run_copies(request: CopyRequest, open_backend: OpenBackend, *, as_json: bool) -> RunResult:
    """Ask the store for each segment's object, compare what it says with the catalog, and show what came of it. Nothing
    is written.
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
    name, is_small = f"{request.context.run_id()}-copies", to_compare.segments <= _FEW_SEGMENTS
    work = Work(name, units, compare_copies, COMPARED, is_small=is_small)
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
