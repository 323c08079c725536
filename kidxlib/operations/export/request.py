"""What is to be exported, checked before anything is listed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from kidxlib.build.remote_logs import RemoteOptions
from kidxlib.errors import UsageError
from kidxlib.operations.export.formats import ExportFormat
from kidxlib.operations.seek.output import ensure_new
from kidxlib.reading.request import Offsets, ReadRequest, Times, read_request, read_schema
from kidxlib.storage.log_dir import is_brokers
from kidxlib.storage.store.s3 import is_object
from kidxlib.terminal.options.directories import existing_index_dir
from kidxlib.terminal.options.sources import parse_topics


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What is to be exported.

    Attributes:
        read: what is read.
        catalog: where it is that tells what need not be read; None for nowhere.
        schema: the columns.
        output: what does not exist yet and is to be made.
        skip_damage: go on after damage, and tell it.
        asked: the options that rows depend on, as they were given: a later run has to ask for the same.
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
    """The options of the command, checked.

    Raises:
        UsageError: one is wrong, or the output is there already.
    """
    form = ExportFormat.of(output)
    if is_object(output):
        raise UsageError(f"--output {output}: expected a path of this machine")
    ensure_new(output)
    place = Path(os.path.abspath(output))
    for above in place.resolve().parents:
        if is_brokers(above):
            raise UsageError(f"--output {output}: {above} is a broker's log dir; expected a place of its own")
    asked = {
        "sources": [each if is_object(each) else os.path.realpath(each) for each in directories],
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
        offsets=_offsets(offsets),
        times=_times(times),
        isolation=isolation,
        index_dir=None if index_dir is None else existing_index_dir("--index-dir", index_dir),
        to_log_end=to_log_end,
        remote=RemoteOptions(layout, tiered_metadata),
    )
    if any(source.remote is not None for source in read.sources):
        asked |= {"layout": layout, "tiered_metadata": list(tiered_metadata)}
    names = None if columns is None else columns.split(",")
    schema = read_schema("records", names, include_headers=include_headers)
    return ExportRequest(
        read=read, catalog=catalog, schema=schema, output=place, form=form, skip_damage=skip_damage, asked=asked
    )


def _offsets(given: tuple[str, ...]) -> Offsets | None:
    """The ranges that `--offsets` means: one for all partitions, or one for each that is named."""
    by_partition: dict[str, tuple[int | None, int | None]] = {}
    for text in given:
        name, equals, limits = text.rpartition("=")
        start, colon, end = limits.partition(":")
        if not colon or not all(each == "" or each.isdecimal() for each in (start, end)):
            raise UsageError(f"--offsets {text}: expected START:END, START:, :END or <topic>-<partition>=START:END")
        found = (int(start) if start else None, int(end) if end else None)
        if not equals and len(given) == 1:
            return found
        if not equals or name in by_partition:
            raise UsageError(f"--offsets {text}: expected one range, or one for each partition that is named")
        by_partition[name] = found
    return by_partition or None


def _times(given: str | None) -> Times | None:
    """The range that `--times` means."""
    if given is None:
        return None
    start, slash, end = given.partition("/")
    if not slash:
        raise UsageError(f"--times {given}: expected START/END, START/ or /END, each ISO 8601 with a zone or ms")
    return start or None, end or None
