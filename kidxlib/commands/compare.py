"""`kidx compare`, `./spark-submit.sh compare`: has a copy all that its original has, and are two replicas the same."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kidxlib.commands.command import (
    FIRST,
    KIDX,
    SETTINGS,
    WithOrWithoutCatalog,
    kidx_command,
    option,
    parameter,
)
from kidxlib.errors import UsageError
from kidxlib.operations.compare.comparison import FILE_KINDS, SAME, As, Comparison, ComparisonFinding, FindingKind
from kidxlib.terminal import options as shared_options
from kidxlib.terminal.console import MORE_IN_JSON
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options import SETTINGS_FILE, IntegerRange, needing_packages
from kidxlib.terminal.outcome import LINES_SHOWN, Outcome
from kidxlib.text.words import counted

if TYPE_CHECKING:
    from kidxlib.catalog.results import CopyRow
    from kidxlib.operations.backend import Backend
    from kidxlib.operations.compare.copy_in_store import CopyRequest


@dataclass(frozen=True, kw_only=True)
class CompareCommand(WithOrWithoutCatalog):
    """What to compare.

    Attributes:
        a, b: a log dir, several with commas between them, or a partition's directory; with a catalog, a source of it.
        allow_behind: B may end earlier, and a cleaner may have merged segments since.
        max_behind: the same, where at most so many segments of A begin at the end of B or beyond it; None for any
            number.
    """

    a: str = parameter(click.argument("a", metavar="A"), at=FIRST)
    b: str = parameter(click.argument("b", metavar="B"), at=FIRST)
    how: str = option(
        "--as",
        "how",
        type=click.Choice([how.value for how in As]),
        default=As.COPY.value,
        show_default=True,
        help="What B is of A: a copy, file by file and byte for byte; or a replica, whose batches are compared by "
        "offset, however its segments are cut.",
        at=FIRST,
    )
    allow_behind: bool = option(
        "--allow-behind",
        is_flag=True,
        help="Exit 0 where B is the same as A up to where B ends, also in segments that are cut elsewhere. Not with "
        "--catalog and a copy.",
        at=FIRST,
    )
    max_behind: int | None = option(
        "--max-behind",
        type=IntegerRange(0),
        metavar="SEGMENTS",
        help="As --allow-behind, and B may lack at most so many whole segments at the end of a partition: with 0 only "
        "the rest of its last one. Not with --catalog.",
        at=FIRST,
    )
    logs_only: bool = option(
        "--logs-only",
        is_flag=True,
        help="Exit 0 also where B lacks files beside the logs or has other ones: index files, snapshots, checkpoints. "
        "They are listed. Not with --catalog.",
        at=FIRST,
    )
    catalog: str | None = option(
        "--catalog",
        metavar="DIR",
        help="Read no log of A: A is the name of a source in this catalog. B is its copy at s3://BUCKET/PREFIX, which "
        "is asked for checksums; or, with --as replica, another source.",
    )
    inactive_only: bool = option(
        "--inactive-only",
        is_flag=True,
        help="With --catalog and a copy: leave out the last segment of each partition, to which a broker may still "
        "write.",
    )
    topics: str = parameter(shared_options.topics)
    settings_file: Path = SETTINGS_FILE
    now: None = None
    processes: int | None = parameter(shared_options.processes, only=KIDX, at=SETTINGS)

    def __post_init__(self) -> None:
        _ = self.pattern  # a wrong pattern is refused before anything is done
        if not self.has_catalog:
            if self.is_job:
                raise UsageError(
                    "no catalog: name it with --catalog DIR, and a source of it as A; kidx compare reads two places"
                )
            if self.inactive_only:
                raise UsageError("--inactive-only: only with --catalog; --allow-behind lets a copy end earlier")
            return
        if self.logs_only:
            raise UsageError(
                "--logs-only: not with --catalog, which compares nothing beside the logs; leave the option out"
            )
        if self.max_behind is not None:
            raise UsageError(
                "--max-behind: not with --catalog, which counts no segments that are lacking; leave the option out"
            )
        with needing_packages("kidx compare --catalog", "copies"):
            import kidxlib.operations.compare.copy_in_store
            import kidxlib.operations.local_backend  # noqa: F401  # before anything is opened

    @property
    def writes(self) -> bool:
        return False

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        from kidxlib.indexing.source import parse_topics

        return parse_topics(self.topics)

    @property
    def harmless(self) -> Collection[FindingKind]:
        """Kinds of findings that do not make the comparison fail."""
        is_allowed = self.allow_behind or self.max_behind is not None
        earlier = (FindingKind.BEHIND, FindingKind.FILE_BEHIND, FindingKind.OTHER_SEGMENTS) if is_allowed else ()
        return (*earlier, *((*FILE_KINDS, FindingKind.FILE_BEHIND) if self.logs_only else ()))


def run_compare(request: CompareCommand, backend: Backend) -> Outcome:
    """Compare B with A, the original: partitions, segments, offsets and bytes first, then other files. Nothing is
    written, and no catalog is needed.

    A and B are each a Kafka log dir, all log dirs of a broker with commas between them, as in log.dirs, one partition's
    directory, or a copy of one of these at s3://BUCKET/PREFIX.

    Exit codes: 0 B has all that A has; 2 wrong options or inputs, nothing done; 3 B lacks something, has something
    else, ends earlier (without --allow-behind, or by more than --max-behind), or something could not be compared; 1
    failed.
    """
    if request.has_catalog:
        return _compare_with_catalog(request, backend)
    from kidxlib.operations.compare.compare_places import compare_places

    compared = compare_places(request.a, request.b, As(request.how), request.pattern, backend.engine)
    return _outcome(request, request.a, request.b, compared)


def _compare_with_catalog(request: CompareCommand, backend: Backend) -> Outcome:
    """Compare A, a source of the catalog, with B, another source or a copy of A in an object store."""
    from kidxlib.operations.compare.compare_places import compare_sources
    from kidxlib.operations.compare.copy_in_store import CopyRequest
    from kidxlib.run.sources import source_paths
    from kidxlib.storage.store.s3 import ObjectPath, is_object

    tables = backend.catalog.tables
    names = {path: name for name, path in source_paths(tables).items()}
    a, b = _source(request.a, names), _source(request.b, names)
    if not is_object(b):
        if request.how != As.REPLICA:
            raise UsageError(
                "--catalog and two sources: it compares their batches; add --as replica, or name two places without "
                "--catalog"
            )
        if request.inactive_only:
            raise UsageError(
                "--inactive-only: only with a copy in an object store; two sources are compared by offset, and "
                "--allow-behind lets B end earlier"
            )
        return _outcome(request, a, b, compare_sources(tables, a, b, request.pattern))
    if request.how == As.REPLICA:
        raise UsageError(f"--as replica and --catalog: {b} is compared as a copy; leave out --as replica")
    if request.allow_behind:
        raise UsageError(
            f"--allow-behind: not with --catalog and {b}, of which each segment is compared as a whole; "
            "give --inactive-only to leave out the last one of each partition"
        )
    copies = CopyRequest(
        context=request.context,
        copy=ObjectPath.of(b),
        source=a,
        topics=request.pattern,
        inactive_only=request.inactive_only,
    )
    return outcome_of_copies(copies, backend, require_checksums=True)


def _source(text: str, names: Mapping[str, str]) -> str:
    """The name of a source that a user named by its name or its directory; `names` has the names of sources by the
    paths that builds were given.
    """
    return text if text in names.values() else names.get(text) or names.get(os.path.realpath(text), text)


def _outcome(request: CompareCommand, a: str, b: str, compared: Comparison) -> Outcome:
    """The findings and the conclusion; `a` and `b` are paths, URLs or names of sources. What a copy must not lack comes
    first.
    """
    kinds = Counter(finding.kind for finding in compared.findings)
    verdicts = Counter(partition.verdict for partition in compared.partitions)
    outcome = Outcome(
        code=ExitCode.PROBLEMS_FOUND if _harmful(request, compared) else ExitCode.OK,
        counts={
            "segments": compared.logs,
            "partitions": len(compared.partitions),
            "same": verdicts[SAME],
            **{kind.value.replace("-", "_"): kinds[kind] for kind in FindingKind},
        },
        bytes=compared.log_bytes,
    )
    outcome.values.update(
        {
            "a": a,
            "b": b,
            "as": request.how,
            "logs": compared.logs,
            "log_bytes": compared.log_bytes,
            "files": compared.files,
            "partitions": [partition.as_json() for partition in compared.partitions],
            "findings": [finding.as_json() for finding in compared.findings],
        }
    )
    outcome.table(
        f"B {b} as {request.how} of A {a}",
        ("partitions", "number"),
        [(verdict, verdicts[verdict]) for verdict in (SAME, *FindingKind) if verdicts[verdict]],
        text_columns=1,
    )
    for kind, findings in compared.by_kind().items():
        outcome.line(*(finding.line() for finding in findings[:LINES_SHOWN]))
        outcome.add_more_line(len(findings) - LINES_SHOWN, f" that are {kind}{MORE_IN_JSON}")
    outcome.line(_what_was_compared(request, compared), _conclusion(request, compared))
    return outcome


def _harmful(request: CompareCommand, compared: Comparison) -> list[ComparisonFinding]:
    return compared.harmful(harmless=request.harmless, max_behind=request.max_behind)


def _what_was_compared(request: CompareCommand, compared: Comparison) -> str:
    from rich.filesize import decimal

    if request.has_catalog:
        catalog = request.catalog or f"database {request.database}"
        return f"compared: what builds have recorded of both in {catalog}; no log was read to its end now"
    logs = f"{counted(compared.logs, 'log')} ({decimal(compared.log_bytes)} on both sides)"
    if request.how == As.REPLICA:
        return f"compared: the batches of {logs}; no other file"
    return f"compared: {logs} and {counted(compared.files, 'other file')}, byte for byte"


def _conclusion(request: CompareCommand, compared: Comparison) -> str:
    kinds = {finding.kind for finding in compared.findings}
    harmful = {finding.kind for finding in _harmful(request, compared)}
    what = "all that A has" if request.how == As.COPY else "the same as A, as far as both can be compared"
    if not harmful:
        until = " up to the offset at which B ends" if FindingKind.BEHIND in kinds else ""
        less = "; of what is cleaned nobody can tell" if FindingKind.CLEANED in kinds else ""
        return f"B has {what}{until}{less}; whether that is whole, kidx verify says"
    if request.max_behind is not None and harmful == {FindingKind.BEHIND}:
        return (
            "B has all that A has up to where B ends, and more segments of A begin there than "
            f"--max-behind {request.max_behind} allows: see the lines above"
        )
    if FindingKind.OTHER_SEGMENTS in kinds and harmful <= {FindingKind.OTHER_SEGMENTS}:
        return "B has all batches of A, in other segments; where that is right, --allow-behind ends with 0"
    if harmful <= {FindingKind.BEHIND, FindingKind.FILE_BEHIND, FindingKind.OTHER_SEGMENTS}:
        return "B has all that A has up to where B ends; where that is right, --allow-behind ends with 0"
    if harmful <= {*FILE_KINDS, FindingKind.FILE_BEHIND}:
        return "B has all logs of A, but not all other files; where that is right, --logs-only ends with 0"
    lacks = "A and B differ" if request.how == As.REPLICA else "B has not all that A has"
    return f"{lacks}, or nobody can tell: see the lines above"


def outcome_of_copies(request: CopyRequest, backend: Backend, *, require_checksums: bool) -> Outcome:
    """Compare a copy in an object store with the catalog, and show the findings, problems first. With
    `require_checksums`, what cannot be compared fails the run, too.
    """
    from kidxlib.operations.compare.copy_in_store import NOT_COMPARABLE, PROBLEMS, CopyVerdict, compare_with_store

    compared = compare_with_store(request, backend)
    unknown = compared.segments(*NOT_COMPARABLE)
    fails = compared.segments(*PROBLEMS) or (require_checksums and unknown)
    outcome = Outcome(
        code=ExitCode.PROBLEMS_FOUND if fails else ExitCode.OK,
        counts={
            "segments": compared.segments(*CopyVerdict),
            **{verdict.value.replace("-", "_"): compared.segments(verdict) for verdict in CopyVerdict},
        },
        bytes=sum(row.log_bytes for row in compared.counts.values()),
        requests=compared.requests,
    )
    outcome.values.update(
        copy=str(request.copy),
        source=compared.source,
        catalog=backend.catalog.path,
        segments={verdict.value: compared.segments(verdict) for verdict in CopyVerdict},
        requests=compared.requests.as_json(),
        problems=lambda: [_copy_as_json(row) for row in compared.rows("problem")],
        not_comparable=lambda: [_copy_as_json(row) for row in compared.rows("unknown")],
    )
    outcome.table(
        f"copy of {compared.source} at {request.copy}",
        ("verdict", "segments", "bytes of logs"),
        [(verdict.value, compared.segments(verdict), compared.log_bytes(verdict)) for verdict in CopyVerdict],
        text_columns=1,
    )
    for kind, verdicts in (("problem", PROBLEMS), ("unknown", NOT_COMPARABLE)):
        rows = itertools.islice(compared.rows(kind), LINES_SHOWN)
        outcome.line(*(f"{row.verdict}: {row.object}: {row.detail}" for row in rows))
        outcome.add_more_line(compared.segments(*verdicts) - LINES_SHOWN, MORE_IN_JSON)
    outcome.line("as-uploaded: the store got the log's bytes when the object was written; none was read back now")
    if compared.requests:
        outcome.line(f"requests:    {compared.requests}")
    outcome.line(f"catalog:     {backend.catalog.path}, source {compared.source}")
    if unknown and not require_checksums:
        of_all = f"{unknown:,} of {counted(compared.segments(*CopyVerdict), 'segment')}"
        outcome.warn(
            f"{of_all} cannot be compared: nothing is known of their copies; --require-checksums makes that exit 3"
        )
    return outcome


def _copy_as_json(row: CopyRow) -> dict[str, Any]:
    return {name: value for name, value in row.values().items() if name != "source"}


compare = kidx_command("compare", CompareCommand, run_compare, reports_as="compare")
