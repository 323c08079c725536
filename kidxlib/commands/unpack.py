"""`kidx unpack`: write the index files that a catalog keeps as single files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.filesize import decimal

from kidxlib.commands.command import FIRST, OnSources, kidx_command, option
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.outcome import Outcome
from kidxlib.text.words import counted

if TYPE_CHECKING:
    from kidxlib.operations.backend import Backend

#: How many files that were not written are named on screen.
_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class UnpackCommand(OnSources):
    """What to unpack, and where to."""

    index_dir: str = option(
        "--index-dir",
        metavar="DIR",
        required=True,
        help="Where <topic>-<partition>/<base offset>.index and the others go, below the source's name where there are "
        "several sources.",
        at=FIRST,
    )
    now: None = None

    def __post_init__(self) -> None:
        from kidxlib.indexing.source import index_dir_to_write

        super().__post_init__()
        index_dir_to_write("--index-dir", self.index_dir)  # what is wrong is told before anything is done


def run_unpack(request: UnpackCommand, backend: Backend) -> Outcome:
    """Write the index files that kidx build --pack keeps in the catalog as single files, byte for byte: .index,
    .timeindex, .txnindex, producer snapshots and leader epochs, as they were built. A broker reads them beside its
    logs. Nothing is written of a partition with a log on this machine that has changed since it was built. The catalog
    stays as it is.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 done, but some files were not written, as a
    log has changed or they do not have their checksum; 1 failed.
    """
    from kidxlib.indexing.source import index_dir_to_write
    from kidxlib.operations.packed import unpack

    place = index_dir_to_write("--index-dir", request.index_dir)
    unpacked = unpack(backend, request.sources, request.pattern, place)
    outcome = Outcome(
        code=ExitCode.PROBLEMS_FOUND if unpacked.broken else ExitCode.OK,
        counts={"partitions": unpacked.partitions, **unpacked.files, "not_well": len(unpacked.broken)},
        bytes=unpacked.file_bytes,
    )
    outcome.values.update(
        index_dir=str(place),
        partitions=unpacked.partitions,
        **unpacked.files,
        bytes=unpacked.file_bytes,
        not_well_count=len(unpacked.broken),
        not_well=unpacked.broken,
        catalog=backend.catalog.path,
    )
    files = counted(sum(unpacked.files.values()), "file")
    outcome.line(
        f"{files}, {decimal(unpacked.file_bytes)}, of {counted(unpacked.partitions, 'partition')}: "
        f"{unpacked.files['written']:,} written, {unpacked.files['unchanged']:,} were there"
    )
    outcome.line(*(f"not written: {line}" for line in unpacked.broken[:_NAMED]))
    outcome.add_more_line(len(unpacked.broken) - _NAMED)
    outcome.line(f"index files: {place}", f"catalog:     {backend.catalog.path}")
    return outcome


unpack = kidx_command("unpack", UnpackCommand, run_unpack, reports_as="unpack")
