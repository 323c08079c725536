"""Exports records into files. `export_request` checks the options before anything is listed; `export_records` plans,
writes parts in the wanted format (`ExportFormat`) and puts them together. Until the export is complete, its parts are
in a directory beside the output (`ExportStaging`), and a later run goes on from there.

In JSON lines, a key or a value that is valid UTF-8 is a string. Any other value is null, and a second member with
`_base64` after its name has the bytes in base64. So each member has values of one kind.
"""

from __future__ import annotations

import base64
import contextlib
import enum
import json
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kidxlib.catalog.matching import Values
from kidxlib.engine.shares import cut_by_weight
from kidxlib.errors import KidxError, UsageError, describe_error
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.source import RemoteOptions, existing_index_dir, parse_topics
from kidxlib.operations.export.json_kernel import measure_texts, write_texts
from kidxlib.operations.seek.seek_files import ensure_new_output
from kidxlib.reading.aborted_ranges import AbortedRanges
from kidxlib.reading.left_out import LeftOut, WhyLeftOut, gaps_between_logs
from kidxlib.reading.plan import plan_reads
from kidxlib.reading.request import Offsets, ReadRequest, Times, read_request, requested_schema
from kidxlib.reading.rows import record_rows_of
from kidxlib.reading.segment_read import LogRead, SegmentRead
from kidxlib.reading.walk import Damage, raise_damage
from kidxlib.records.arrow_columns import flags_array
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.run.context import existing_catalog_tables
from kidxlib.storage.location import FileVersion
from kidxlib.storage.lock import ensure_locks
from kidxlib.storage.log_dir import is_broker_log_dir
from kidxlib.storage.small_files import small_file
from kidxlib.storage.store.s3 import is_object
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import Progress, begin_phase, note, warn
from kidxlib.text.words import counted

#: A part has about this many bytes of segments. A larger segment becomes several parts, or one part if no index tells
#: where to divide it.
_PART_BYTES: Final = 128 * 1024 * 1024

_PLAN: Final = "plan.json"
_LOCK: Final = "lock"
_VERSION: Final = 4

#: A Parquet row group has about this many bytes, and is in memory until it is written.
_ROW_GROUP_BYTES: Final = 32 * 1024 * 1024

_COPIED_BYTES: Final = 4 * 1024 * 1024

#: The first and the last timestamp whose year has four digits, in ms since the epoch.
_FIRST_DATE_MS: Final = -62_135_596_800_000
_LAST_DATE_MS: Final = 253_402_300_799_999


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What is to be exported, and where to.

    Attributes:
        catalog: the path or URL of a catalog, which tells what need not be read.
        schema: the columns of the exported rows.
        output: a path that does not exist yet.
        skip_damage: go on after damage, and report it.
        asked: the options that rows depend on, as the user gave them. A later run must have the same.
    """

    read: ReadRequest
    catalog: str | None
    schema: pa.Schema
    output: Path
    form: ExportFormat
    skip_damage: bool
    asked: dict[str, Any]


def export_request(
    directories: Sequence[str],
    *,
    output: str,
    topics: str,
    offsets: tuple[str, ...],
    times: str | None,
    isolation: str,
    include_headers: bool,
    columns: str | None,
    index_dir: str | None,
    catalog: str | None,
    to_log_end: bool | None,
    skip_damage: bool,
    layout: str | None = None,
    tiered_metadata: tuple[str, ...] = (),
) -> ExportRequest:
    """Check the options of an export, and make a request of them."""
    form = ExportFormat.of_path(output)
    if is_object(output):
        raise UsageError(f"--output {output}: expected a path of this machine")
    ensure_new_output(output)
    output_path = Path(os.path.abspath(output))
    for parent in output_path.resolve().parents:
        if is_broker_log_dir(parent):
            raise UsageError(f"--output {output}: {parent} is a broker's log dir; expected a place of its own")
    asked = {
        "sources": [directory if is_object(directory) else os.path.realpath(directory) for directory in directories],
        "topics": topics,
        "offsets": list(offsets),
        "times": times,
        "isolation": isolation,
        "include_headers": include_headers,
        "columns": columns,
        "to_log_end": to_log_end,
        "skip_damage": skip_damage,
    }
    read = read_request(
        directories,
        topics=parse_topics(topics),
        offsets=_parsed_offsets(offsets),
        times=_parsed_times(times),
        isolation=isolation,
        index_dir=None if index_dir is None else existing_index_dir("--index-dir", index_dir),
        to_log_end=to_log_end,
        remote=RemoteOptions(layout, tiered_metadata),
    )
    if any(source.remote is not None for source in read.sources):
        asked |= {"layout": layout, "tiered_metadata": list(tiered_metadata)}
    names = None if columns is None else columns.split(",")
    schema = requested_schema("records", names, include_headers=include_headers)
    return ExportRequest(
        read=read, catalog=catalog, schema=schema, output=output_path, form=form, skip_damage=skip_damage, asked=asked
    )


def _parsed_offsets(given: tuple[str, ...]) -> Offsets | None:
    """The ranges of `--offsets`: one for all partitions, or one for each named partition."""
    by_partition: dict[str, tuple[int | None, int | None]] = {}
    for text in given:
        name, equals, limits = text.rpartition("=")
        start, colon, end = limits.partition(":")
        if not colon or not all(limit == "" or limit.isdecimal() for limit in (start, end)):
            raise UsageError(f"--offsets {text}: expected START:END, START:, :END or <topic>-<partition>=START:END")
        offsets = (int(start) if start else None, int(end) if end else None)
        if not equals and len(given) == 1:
            return offsets
        if not equals or name in by_partition:
            raise UsageError(f"--offsets {text}: expected one range, or one for each partition that is named")
        by_partition[name] = offsets
    return by_partition or None


def _parsed_times(given: str | None) -> Times | None:
    if given is None:
        return None
    start, slash, end = given.partition("/")
    if not slash:
        raise UsageError(f"--times {given}: expected START/END, START/ or /END, each ISO 8601 with a zone or ms")
    return start or None, end or None


def export_records(request: ExportRequest, threads: int) -> Exported:
    """Export, or go on where an earlier run was interrupted. A partition with a damaged log is exported up to the
    damage. The other partitions are exported completely.
    """
    staging = ExportStaging(request.output, request.form.value)
    try:
        with staging.locked():
            plan = staging.earlier_plan(request.asked)
            if plan is None:
                plan = _make_plan(request, threads)
                staging.keep_plan(request.asked, plan)
            parts = _write_parts(request, plan.units, staging, threads)
            exported = _sum_up(plan, parts)
            if exported.failed and not exported.rows:  # without a record there is nothing to keep
                staging.forget()
                raise KidxError(exported.failed[0])
            _make_output(request, staging, len(plan.units))
    except OSError as error:
        raise KidxError(f"--output {request.output}: {describe_error(error)}") from error
    return exported


def _sum_up(plan: PlannedExport, parts: Sequence[FinishedPart]) -> Exported:
    failures = {  # the first one of each partition, as later entries replace earlier ones
        (partition.topic, partition.partition): partition.why for part in reversed(parts) for partition in part.ended
    }
    logs = [log for part in parts for log in part.logs]
    return Exported(
        rows=sum(part.rows for part in parts),
        segments=_segments_in(plan.units),
        log_bytes=sum(map(_bytes_of, plan.units)),
        damage=tuple(line for part in parts for line in part.damage),
        failed=(*plan.failed, *(why for _, why in sorted(failures.items()))),
        left_out=(*plan.left_out, *gaps_between_logs(logs)),
    )


def _make_plan(request: ExportRequest, threads: int) -> PlannedExport:
    begin_phase("planning")
    catalog = None if request.catalog is None else existing_catalog_tables("--catalog", request.catalog)
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
        present = counted(plan.skipped_partitions, "partition")
        raise UsageError(
            f"{request.read.place}: it has {present}, none of which is asked for; expected --topics and --offsets to "
            "name one that is there"
        )
    for line in (*plan.notes, *plan.remarks):
        note(line)
    for line in plan.of_another_time:
        warn(line)
    sizes = [read.log_bytes for read in plan.reads]
    units = [plan.reads[start:end] for start, end in cut_by_weight(sizes, _PART_BYTES)] or [()]  # a file at least
    failed = tuple(f"{partition.directory}: {why}; not exported" for partition, why in plan.failed.items())
    left_out = tuple(item for item in plan.left_out if item.is_problem or item.why is WhyLeftOut.FIRST_LOGS_NOT_KNOWN)
    return PlannedExport(units, left_out, (*plan.unreadable, *failed))


def _bytes_of(unit: Sequence[SegmentRead]) -> int:
    return sum(read.log_bytes for read in unit)


def _segments_in(units: Iterable[Sequence[SegmentRead]]) -> int:
    return len({read.log_path for unit in units for read in unit})


@dataclass(slots=True)
class _PartsProgress:
    """How much threads have read so far, and whether they should stop.

    Attributes:
        left: the number of reads still to be done, by the path of the log.
    """

    left: Counter[str]
    done: Progress = field(default_factory=Progress)
    began: float = field(default_factory=time.monotonic)
    stops: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, reads: Sequence[SegmentRead]) -> None:
        with self._lock:
            self.left.subtract(read.log_path for read in reads)
            segments = sum(not left for left in self.left.values())
            self.done = Progress(segments, self.done.log_bytes + _bytes_of(reads), time.monotonic() - self.began)


class _StoppedError(Exception):
    """The run is ending, so a thread gives up its part."""


def _write_parts(
    request: ExportRequest, units: Sequence[Sequence[SegmentRead]], staging: ExportStaging, threads: int
) -> list[FinishedPart]:
    progress = _PartsProgress(Counter(read.log_path for unit in units for read in unit))
    begin_phase(
        "exporting",
        done=lambda: progress.done,
        segments=_segments_in(units),
        log_bytes=sum(map(_bytes_of, units)),
        after="putting parts together",
    )

    def write_unless_finished(number: int) -> FinishedPart:
        finished = staging.finished(number)
        if finished is None:
            return _write_part(request, number, units[number], staging, progress)
        progress.add(units[number])
        return finished

    def finished_so_far() -> str:
        count = sum(staging.finished(number) is not None for number in range(len(units)))
        return f"{count} of {len(units)} parts are finished; run the same command again to go on"

    with interrupts.telling(finished_so_far), ThreadPoolExecutor(threads) as pool:
        try:
            parts = list(pool.map(write_unless_finished, range(len(units))))
            ended = [partition for part in parts for partition in part.ended]
            for number, unit in enumerate(units if ended else ()):
                reads = [read for read in unit if not _is_past_end(read, ended)]
                if len(reads) < parts[number].reads:  # the part was written before another found the damage
                    staging.discard(number)
                    parts[number] = _write_part(request, number, reads, staging, progress)
            return parts
        finally:
            progress.stops.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _write_part(
    request: ExportRequest, number: int, unit: Sequence[SegmentRead], staging: ExportStaging, progress: _PartsProgress
) -> FinishedPart:
    damage_lines: list[str] = []
    ended: list[_EndedPartition] = []
    logs: list[LogRead] = []

    def note_damage(damage: Damage) -> None:
        damage_lines.append(f"{damage}; not exported: {damage.lost}")

    def rows() -> Iterator[pa.RecordBatch]:
        on_damage = note_damage if request.skip_damage else raise_damage
        for read in unit:
            if _is_past_end(read, ended):
                continue
            try:
                goes_on = request.skip_damage
                for batch in record_rows_of(
                    [read], request.schema, on_damage, goes_on=goes_on, threads=1, on_end=logs.append
                ):
                    if progress.stops.is_set():
                        raise _StoppedError
                    yield batch
            except (OSError, KidxError) as error:
                ended.append(
                    _EndedPartition(read.topic, read.partition, read.base_offset, read.position, describe_error(error))
                )
            progress.add([read])

    written: Path = staging.part(number).with_suffix(".tmp")
    count = write_part(request.form, written, request.schema, rows())
    reads = sum(not _is_past_end(read, ended) for read in unit)
    finished = FinishedPart(count, reads, tuple(damage_lines), tuple(ended), tuple(logs))
    staging.finish(number, finished, written)
    return finished


def _make_output(request: ExportRequest, staging: ExportStaging, units: int) -> None:
    if request.form is ExportFormat.PARQUET:
        staging.rename_to(request.output)
        return
    whole = staging.directory / "whole.tmp"
    assemble(request.form, map(staging.part, range(units)), request.schema, whole)
    staging.rename_file_to(whole, request.output)


@dataclass(frozen=True, slots=True)
class Exported:
    """What this run and the interrupted runs before it have exported.

    Attributes:
        log_bytes: how many bytes of segments these runs have read.
        damage: a line for each damaged stretch that was skipped.
        failed: a line for each partition that was not exported completely, as something is wrong with a log.
        left_out: offsets that were not exported, or were asked for and do not exist; also the offsets of first logs
            that may be lost.
    """

    rows: int
    segments: int
    log_bytes: int
    damage: tuple[str, ...]
    failed: tuple[str, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the export has all wanted records that a consumer would get."""
        return not (self.damage or self.failed or self.problems)

    @property
    def problems(self) -> list[LeftOut]:
        """The part of `left_out` that a person should look at."""
        return [item for item in self.left_out if item.is_problem]


@dataclass(frozen=True, slots=True)
class PlannedExport:
    """What is to be exported. Each unit becomes a part.

    Attributes:
        units: the reads of each part.
        left_out: the part of `ReadPlan.left_out` that a person should look at, and first logs that may be lost.
        failed: a line for each partition that could not be planned, and those of `ReadPlan.unreadable`.
    """

    units: Sequence[Sequence[SegmentRead]]
    left_out: tuple[LeftOut, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _EndedPartition:
    """A partition whose export ends early, because a log is damaged.

    Attributes:
        base_offset, position: where the read with the damage begins. Records after the damage were not exported.
    """

    topic: str
    partition: int
    base_offset: int
    position: int
    why: str

    def ends_before(self, read: SegmentRead) -> bool:
        is_same_partition = (read.topic, read.partition) == (self.topic, self.partition)
        return is_same_partition and (read.base_offset, read.position) > (self.base_offset, self.position)


def _is_past_end(read: SegmentRead, ended: Iterable[_EndedPartition]) -> bool:
    return any(partition.ends_before(read) for partition in ended)


@dataclass(frozen=True, slots=True)
class FinishedPart:
    """The facts of a finished part.

    Attributes:
        reads: how many reads of the unit the part has. It has none after the early end of their partition.
        damage: a line for each damaged stretch that was skipped.
        ended: partitions that end early in this part.
        logs: logs, or parts of logs, that were read to their ends.
    """

    rows: int
    reads: int
    damage: tuple[str, ...]
    ended: tuple[_EndedPartition, ...]
    logs: tuple[LogRead, ...] = ()


class ExportStaging:
    """A directory with the plan of an export and its finished parts. A part gets its final name once it is complete."""

    def __init__(self, output: Path, suffix: str) -> None:
        self.directory = output.with_name(f"{output.name}.kidx-export")
        self._suffix = suffix

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the directory, so that no other run works in it during the context."""
        ensure_locks(self.directory)
        import fcntl  # not on top: records are also read on systems without it

        self.directory.mkdir(exist_ok=True)
        with (self.directory / _LOCK).open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UsageError(f"{self.directory}: another export to this output is at work; wait for it") from error
            try:
                yield
            finally:
                if not (self.directory / _PLAN).exists():  # nothing was begun, or everything is done
                    shutil.rmtree(self.directory, ignore_errors=True)

    def earlier_plan(self, asked: dict[str, Any]) -> PlannedExport | None:
        """The plan of an earlier run with the same options; None if there is none."""
        try:
            kept = json.loads(small_file(self.directory / _PLAN))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise KidxError(f"{self.directory / _PLAN}: not JSON; remove {self.directory}, and start anew") from error
        if kept["version"] != _VERSION or kept["asked"] != asked:
            raise UsageError(
                f"{self.directory}: an export with other options was begun and not finished; give those options again, "
                "or remove this directory"
            )
        return PlannedExport(
            [[_read_from_json(read) for read in unit] for unit in kept["units"]],
            tuple(map(_left_out_from_json, kept["left_out"])),
            tuple(kept["failed"]),
        )

    def keep_plan(self, asked: dict[str, Any], plan: PlannedExport) -> None:
        kept = {
            "version": _VERSION,
            "asked": asked,
            "units": [[_read_as_json(read) for read in unit] for unit in plan.units],
            "left_out": [asdict(left_out) for left_out in plan.left_out],
            "failed": plan.failed,
        }
        self._write(_PLAN, json.dumps(kept))

    def part(self, number: int) -> Path:
        """The file of a unit's rows."""
        return self.directory / f"part-{number:05}{self._suffix}"

    def finished(self, number: int) -> FinishedPart | None:
        """The facts of a part of an export; None if the part is not complete."""
        if not (self.part(number).exists() and self._facts(number).exists()):
            return None
        facts = json.loads(small_file(self._facts(number)))
        ended = tuple(_EndedPartition(**partition) for partition in facts["ended"])
        logs = tuple(LogRead(**log) for log in facts["logs"])
        return FinishedPart(facts["rows"], facts["reads"], tuple(facts["damage"]), ended, logs)

    def discard(self, number: int) -> None:
        """Remove a part of an export, so that it is written again."""
        self._facts(number).unlink()
        self.part(number).unlink()

    def finish(self, number: int, part: FinishedPart, written: Path) -> None:
        """Give a complete part its final name."""
        self._write(self._facts(number).name, json.dumps(asdict(part)))
        written.rename(self.part(number))
        _sync(self.directory)

    def rename_to(self, output: Path) -> None:
        """Remove all files but the parts, and rename the directory to the output. The plan is removed last: without it,
        a later run does not use the parts.
        """
        plan = self.directory / _PLAN
        for path in list(self.directory.iterdir()):
            if path.suffix != self._suffix and path != plan:
                path.unlink()
        plan.unlink()
        self.directory.rename(output)
        _sync(output.parent)

    def rename_file_to(self, whole: Path, output: Path) -> None:
        whole.rename(output)
        _sync(output.parent)
        shutil.rmtree(self.directory)

    def forget(self) -> None:
        """Remove the plan, so that no later run uses the parts; `locked` then removes the directory."""
        (self.directory / _PLAN).unlink()

    def _facts(self, number: int) -> Path:
        return self.directory / f"part-{number:05}.json"

    def _write(self, name: str, text: str) -> None:
        path = self.directory / f"{name}.tmp"
        with path.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        path.rename(self.directory / name)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_as_json(read: SegmentRead) -> dict[str, Any]:
    return {**asdict(read), "aborted": base64.b64encode(read.aborted.packed).decode()}


def _read_from_json(read: dict[str, Any]) -> SegmentRead:
    return SegmentRead(
        **{
            **read,
            "version": FileVersion(**read["version"]),
            "wanted": WantedRecords(**read["wanted"]),
            "aborted": AbortedRanges(base64.b64decode(read["aborted"])),
        }
    )


def _left_out_from_json(left_out: dict[str, Any]) -> LeftOut:
    return LeftOut(
        **{**left_out, "partition": TopicPartition(**left_out["partition"]), "why": WhyLeftOut(left_out["why"])}
    )


class ExportFormat(enum.Enum):
    """A format; its value is the suffix of the output's name."""

    PARQUET = ".parquet"
    ARROW = ".arrow"
    JSON_LINES = ".jsonl"

    @classmethod
    def of_path(cls, path: str) -> ExportFormat:
        for form in cls:
            if path.rstrip("/").endswith(form.value):
                return form
        raise UsageError(f"--output {path}: expected a name that ends in {', '.join(form.value for form in cls)}")


def write_part(form: ExportFormat, path: Path, schema: pa.Schema, rows: Iterable[pa.RecordBatch]) -> int:
    """Write rows into the file of a new part of an export, flush it to disk, and return the number of rows."""
    count = 0
    with path.open("wb") as file:
        if form is ExportFormat.PARQUET:
            with pq.ParquetWriter(file, schema, compression="zstd") as writer:
                for table in _row_groups(rows):
                    writer.write_table(table)
                    count += table.num_rows
        elif form is ExportFormat.ARROW:
            with pa.ipc.new_stream(file, schema) as stream:
                for batch in rows:
                    stream.write_batch(batch)
                    count += batch.num_rows
        else:
            for batch in rows:
                file.write(records_as_json_lines(batch))
                count += batch.num_rows
        file.flush()
        os.fsync(file.fileno())
    return count


def _row_groups(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    batches: list[pa.RecordBatch] = []
    for batch in rows:
        batches.append(batch)
        if sum(batch.nbytes for batch in batches) >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(batches)
            batches = []
    if batches:
        yield pa.Table.from_batches(batches)


def assemble(form: ExportFormat, parts: Iterable[Path], schema: pa.Schema, whole: Path) -> None:
    """Join the parts of an export in one file, and flush it to disk. Not for Parquet: its parts are the files of a
    directory.
    """
    with whole.open("wb") as file:
        if form is ExportFormat.ARROW:
            with pa.ipc.new_file(file, schema) as writer:
                for part in parts:
                    with pa.memory_map(str(part)) as mapped, pa.ipc.open_stream(mapped) as stream:
                        for batch in stream:
                            writer.write_batch(batch)
        else:
            for part in parts:
                with part.open("rb") as content:
                    shutil.copyfileobj(content, file, _COPIED_BYTES)
        file.flush()
        os.fsync(file.fileno())


def records_as_json_lines(rows: pa.RecordBatch) -> bytes:
    """A line with a JSON object for each row. The columns are some of `CONSUMED`."""
    members = [_json_member(name, rows.column(name)) for name in rows.schema.names]
    lines = _joined("{", members[0], *(part for member in members[1:] for part in (",", member)), "}\n")
    _, positions, text = lines.buffers()
    return b"" if text is None else text.to_pybytes()[: np.frombuffer(positions, np.int32)[len(lines)]]


def _json_member(name: str, column: Values) -> Values:
    """The member of each row's JSON object for one column."""
    if pa.types.is_binary(column.type):
        values = _json_bytes(name, column)
    elif pa.types.is_string(column.type):
        values = _json_strings(column)[0]
    elif pa.types.is_timestamp(column.type):
        values = _json_times(column)
    elif pa.types.is_list(column.type):
        values = _json_headers(column)
    else:
        values = column.cast(pa.string())
    return _joined(f'"{name}":', values)


def _joined(*parts: Values) -> Values:
    return pc.binary_join_element_wise(*parts, "")


def _json_bytes(name: str, column: Values) -> Values:
    literals, is_text = _json_strings(column)
    others = _joined(f'null,"{name}_base64":', literals)
    return pc.if_else(column.is_null(), "null", pc.if_else(is_text, literals, others))


def _json_strings(column: Values) -> tuple[Values, Values]:
    """JSON strings of the values, and flags of the values that are UTF-8; the others are in base64."""
    rows = len(column)
    _, starts, data = column.buffers()
    positions = (
        np.frombuffer(starts, np.int32)[column.offset : column.offset + rows + 1] if rows else np.zeros(1, np.int32)
    )
    content = np.frombuffer(b"" if data is None else data, np.uint8)
    content.setflags(write=False)
    is_text, sizes = np.empty(rows, np.bool_), np.empty(rows, np.int64)
    measure_texts(content, positions, is_text, sizes)
    text_ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    out = np.empty(int(sizes.sum()), np.uint8)
    write_texts(content, positions, is_text, out)
    buffers = [None, pa.py_buffer(text_ends.data), pa.py_buffer(out.data)]
    return pa.Array.from_buffers(pa.string(), rows, buffers), flags_array(is_text)


def _json_times(column: Values) -> Values:
    """Timestamps in ISO 8601, UTC; ms since the epoch if the year does not have four digits."""
    ms = column.cast(pa.int64())
    has_date = pc.and_(pc.greater_equal(ms, pa.scalar(_FIRST_DATE_MS)), pc.less_equal(ms, pa.scalar(_LAST_DATE_MS)))
    times = pc.if_else(has_date, ms, 0).cast(column.type).cast(pa.string())
    return pc.if_else(has_date, _joined('"', pc.replace_substring(times, " ", "T"), '"'), ms.cast(pa.string()))


def _json_headers(column: Values) -> Values:
    headers = column.flatten()
    keys, values = _json_strings(headers.field("key"))[0], _json_bytes("value", headers.field("value"))
    objects = _joined('{"key":', keys, ',"value":', values, "}")
    bounds = pc.subtract(column.offsets, column.offsets[0]).cast(pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(bounds, objects), ",")
    return pc.if_else(column.is_null(), "null", _joined("[", joined, "]"))
