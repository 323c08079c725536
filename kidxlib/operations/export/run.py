"""An export from the listing to the files that it makes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from kidxlib.errors import KidxError, UsageError, describe_error
from kidxlib.operations.export.formats import ExportFormat, assemble, write_part
from kidxlib.operations.export.request import ExportRequest
from kidxlib.operations.export.staging import EndedPartition, FinishedPart, PlannedExport, Staging
from kidxlib.reading.damage import Damage, fail_on
from kidxlib.reading.gaps_met import LogRead, gaps_of
from kidxlib.reading.left_out import LeftOut
from kidxlib.reading.plan import plan_reads
from kidxlib.reading.rows import rows_of
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.run.catalog_tables import existing_tables
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import note, warn
from kidxlib.terminal.phase import Done
from kidxlib.terminal.progress import begin_phase
from kidxlib.text.counted import counted

#: Segments of so many bytes make one part, about; a larger one makes several, or is one by itself where no index tells
#: how to divide it.
_PART_BYTES: Final = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export has written.

    Attributes:
        log_bytes: of the segments that were read, by this run and those that it took up.
        damage: what was passed over, a line each.
        failed: partitions of which not all was exported, as something is wrong with a log, a line each.
        left_out: offsets that were not exported, and such as were asked for and are not there.
    """

    rows: int
    segments: int
    log_bytes: int
    damage: tuple[str, ...]
    failed: tuple[str, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all was exported that a consumer would get of what was asked for."""
        return not (self.damage or self.failed or self.left_out)


def run_export(request: ExportRequest, threads: int) -> Exported:
    """Export, or go on where an earlier run was interrupted. A partition with a damaged log is exported up to the
    damage, and the others as a whole.

    Raises:
        UsageError: there is nothing to read, or another export to this output is not finished.
        KidxError: not one partition can be read; or a file cannot be written. Parts that are finished stay for a later
            run.
    """
    staging = Staging(request.output, request.form.value)
    try:
        with staging.locked():
            plan = staging.plan(request.asked)
            if plan is None:
                plan = _planned(request, threads)
                staging.keep_plan(request.asked, plan)
            parts = _write_parts(request, plan.units, staging, threads)
            exported = _exported(plan, parts)
            if exported.failed and not exported.rows:
                staging.give_up()
                raise KidxError(exported.failed[0])
            _put_together(request, staging, len(plan.units))
    except OSError as error:
        raise KidxError(f"--output {request.output}: {describe_error(error)}") from error
    return exported


def _exported(plan: PlannedExport, parts: Sequence[FinishedPart]) -> Exported:
    ended = {(each.topic, each.partition): each.why for part in reversed(parts) for each in part.ended}
    logs = [log for part in parts for log in part.logs]
    return Exported(
        rows=sum(part.rows for part in parts),
        segments=_segments_in(plan.units),
        log_bytes=sum(map(_bytes_of, plan.units)),
        damage=tuple(line for part in parts for line in part.damage),
        failed=(*plan.failed, *(why for _, why in sorted(ended.items()))),
        left_out=(*plan.left_out, *gaps_of(logs, (read for unit in plan.units for read in unit))),
    )


def _planned(request: ExportRequest, threads: int) -> PlannedExport:
    begin_phase("planning")
    catalog = None if request.catalog is None else existing_tables("--catalog", request.catalog)
    try:
        plan = plan_reads(
            request.read,
            goes_on=request.skip_damage,
            threads=threads,
            part_bytes=_PART_BYTES,
            catalog=catalog,
            isolates=True,
        )
    except OSError as error:
        raise KidxError(describe_error(error)) from error
    if not plan.named_partitions:
        there = counted(plan.skipped_partitions, "partition")
        raise UsageError(
            f"{request.read.place}: it has {there}, none of which is asked for; expected --topics and --offsets to "
            "name one that is there"
        )
    for line in (*plan.notes, *plan.remarks):
        note(line)
    for line in plan.of_another_time:
        warn(line)
    units: list[list[SegmentRead]] = [[]]
    for read in plan.reads:
        if units[-1] and _bytes_of(units[-1]) + read.log_bytes > _PART_BYTES:
            units.append([])
        units[-1].append(read)
    failed = tuple(f"{partition.directory}: {why}; not exported" for partition, why in plan.failed.items())
    left_out = tuple(each for each in plan.left_out if each.is_problem)
    return PlannedExport(units, left_out, (*plan.unreadable, *failed))


def _bytes_of(unit: Sequence[SegmentRead]) -> int:
    return sum(read.log_bytes for read in unit)


def _segments_in(units: Iterable[Sequence[SegmentRead]]) -> int:
    return len({read.log_path for unit in units for read in unit})


@dataclass(slots=True)
class _Progress:
    """What threads have read so far, and whether they are to stop.

    Attributes:
        left: of each segment, how many reads are still to be done.
    """

    left: Counter[str]
    done: Done = field(default_factory=Done)
    began: float = field(default_factory=time.monotonic)
    stops: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, reads: Sequence[SegmentRead]) -> None:
        with self._lock:
            self.left.subtract(read.log_path for read in reads)
            segments = sum(not left for left in self.left.values())
            self.done = Done(segments, self.done.log_bytes + _bytes_of(reads), time.monotonic() - self.began)


class _StoppedError(Exception):
    """A part was given up, as the run ends."""


def _write_parts(
    request: ExportRequest, units: Sequence[Sequence[SegmentRead]], staging: Staging, threads: int
) -> list[FinishedPart]:
    progress = _Progress(Counter(read.log_path for unit in units for read in unit))
    begin_phase(
        "exporting",
        done=lambda: progress.done,
        segments=_segments_in(units),
        log_bytes=sum(map(_bytes_of, units)),
        after="putting parts together",
    )

    def write(number: int) -> FinishedPart:
        finished = staging.finished(number)
        if finished is None:
            finished = _write_part(request, number, units[number], staging, progress)
        else:
            progress.add(units[number])
        return finished

    def told() -> str:
        kept = sum(staging.finished(number) is not None for number in range(len(units)))
        return f"{kept} of {len(units)} parts are finished; run the same command again to go on"

    with interrupts.telling(told), ThreadPoolExecutor(threads) as pool:
        try:
            parts = list(pool.map(write, range(len(units))))
            ended = [each for part in parts for each in part.ended]
            for number, unit in enumerate(units if ended else ()):
                kept = [read for read in unit if not any(each.ends_before(read) for each in ended)]
                if len(kept) < parts[number].reads:  # it was written before it was known that its partition ends
                    staging.discard(number)
                    parts[number] = _write_part(request, number, kept, staging, progress)
            return parts
        finally:
            progress.stops.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _write_part(
    request: ExportRequest, number: int, unit: Sequence[SegmentRead], staging: Staging, progress: _Progress
) -> FinishedPart:
    lost: list[str] = []
    ended: list[EndedPartition] = []
    logs: list[LogRead] = []

    def note_damage(damage: Damage) -> None:
        lost.append(f"{damage}; not exported: {damage.lost}")

    def rows() -> Iterator[pa.RecordBatch]:
        on_damage = note_damage if request.skip_damage else fail_on
        for read in unit:
            if any(each.ends_before(read) for each in ended):
                continue
            try:
                goes_on = request.skip_damage
                for batch in rows_of([read], request.schema, on_damage, goes_on=goes_on, threads=1, on_end=logs.append):
                    if progress.stops.is_set():
                        raise _StoppedError
                    yield batch
            except (OSError, KidxError) as error:
                ended.append(
                    EndedPartition(read.topic, read.partition, read.base_offset, read.position, describe_error(error))
                )
            progress.add([read])

    written: Path = staging.part(number).with_suffix(".tmp")
    count = write_part(request.form, written, request.schema, rows())
    reads = sum(not any(each.ends_before(read) for each in ended) for read in unit)
    finished = FinishedPart(count, reads, tuple(lost), tuple(ended), tuple(logs))
    staging.finish(number, finished, written)
    return finished


def _put_together(request: ExportRequest, staging: Staging, units: int) -> None:
    if request.form is ExportFormat.PARQUET:
        staging.become(request.output)
        return
    whole = staging.directory / "whole.tmp"
    assemble(request.form, map(staging.part, range(units)), request.schema, whole)
    staging.give(whole, request.output)
