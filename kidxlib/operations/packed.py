"""Index files that a catalog keeps in its table `index_bytes`: recorded as workers hand them out (`record_packed`),
removed once nobody needs them, and written as single files, byte for byte, where no log has changed since it was built
(`unpack`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog import updates
from kidxlib.catalog.conditions import PRESENT, Among, scope_of
from kidxlib.catalog.index_bytes import INDEX_BYTES
from kidxlib.catalog.matching import Values, positions_in
from kidxlib.catalog.partitions import PARTITIONS, named_key, partition_keys
from kidxlib.catalog.results import UNPACKED, UnpackedPartition
from kidxlib.catalog.segments import SEGMENTS, LogVersion
from kidxlib.engine.work import ItemRows, StagedRows, Work, reads_little
from kidxlib.errors import UsageError
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX
from kidxlib.format.topic_partition import PartitionKey, TopicPartition
from kidxlib.indexing.bins import BINS_PER_CORE
from kidxlib.indexing.source import ensure_no_overlap
from kidxlib.operations.backend import Backend
from kidxlib.run.sources import as_sources, source_paths, sources_in_catalog
from kidxlib.storage.location import Directory, FileVersion, Location, location, version_at
from kidxlib.storage.packed import SCHEME, PackedPath
from kidxlib.storage.publisher import GROUP_BYTES, GROUP_FILES, Published, Publisher
from kidxlib.tables.protocol import Tables, TablesToRead
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import begin_phase

#: The most bytes, and rows, that one commit takes; as many are held.
_BYTES_AT_ONCE: Final = 64 * 1024 * 1024
_ROWS_AT_ONCE: Final = 400_000


def record_packed(tables: Tables, staged: StagedRows) -> None:
    """Commit the packed files of a run's rows (`packed`), in parts that fit into memory. It comes before the commit of
    their segments: a row of `segments` always has its files.
    """
    for part in _parts(staged.batches("packed")):
        tables.change_rows(INDEX_BYTES, {"packed": part}, updates.packed, by=SEGMENTS.key)


def _parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        if held and (
            sum(part.nbytes for part in held) + batch.nbytes > _BYTES_AT_ONCE
            or sum(part.num_rows for part in held) + batch.num_rows > _ROWS_AT_ONCE
        ):
            yield pa.Table.from_batches(held)
            held.clear()
        held.append(batch)
    if held:
        yield pa.Table.from_batches(held)


def remove_packed(tables: Tables, keys: pa.Table) -> None:
    """Remove the packed files of segments, by their keys."""
    if not keys.num_rows or not tables.version(INDEX_BYTES):  # version 0 has no rows
        return
    rows = tables.read(INDEX_BYTES, INDEX_BYTES.key, scope_of({"segment": keys}, SEGMENTS.key))
    _remove(tables, rows.filter(pa.array(positions_in(rows, keys, SEGMENTS.key) >= 0)))


def remove_unused_packed(tables: Tables, sources: list[str]) -> None:
    """Remove the packed files of partitions all of whose segments have their index files elsewhere now."""
    if not tables.version(INDEX_BYTES):
        return
    of_sources = Among("source", tuple(sources))
    rows = tables.read(INDEX_BYTES, INDEX_BYTES.key, [of_sources])
    if not rows.num_rows:
        return
    directories = tables.counts(SEGMENTS, [*PARTITIONS.key, "index_directory"], [of_sources, PRESENT])
    is_inside: Values = pc.starts_with(directories["index_directory"], SCHEME)
    is_elsewhere: Values = pc.invert(is_inside)
    elsewhere = directories.filter(is_elsewhere).select(PARTITIONS.key)
    inside = directories.filter(is_inside).select(PARTITIONS.key)
    is_left = (positions_in(rows, elsewhere, PARTITIONS.key) >= 0) & (positions_in(rows, inside, PARTITIONS.key) < 0)
    _remove(tables, rows.filter(pa.array(is_left)))


def _remove(tables: Tables, keys: pa.Table) -> None:
    keys = keys.sort_by([(name, "ascending") for name in INDEX_BYTES.order])
    for start in range(0, keys.num_rows, _ROWS_AT_ONCE):
        found = {"key": keys.slice(start, _ROWS_AT_ONCE)}
        tables.change_rows(INDEX_BYTES, found, partial(updates.removed, table=INDEX_BYTES), by=INDEX_BYTES.key)


@dataclass(slots=True)
class Unpacked:
    """What was written.

    Attributes:
        files: by what was done.
        file_bytes: of all files.
        broken: why some files were not written.
    """

    files: dict[str, int] = field(default_factory=dict)
    file_bytes: int = 0
    partitions: int = 0
    broken: list[str] = field(default_factory=list)


def unpack(backend: Backend, named: Sequence[str], pattern: re.Pattern[str], index_dir: Location) -> Unpacked:
    """Write the packed index files of some sources (all if none is named) and topics below an index directory, as a
    build with --index-dir does.
    """
    begin_phase("looking for packed index files")
    tables, engine = backend.catalog.tables, backend.engine
    counts = tables.counts(INDEX_BYTES, PARTITIONS.key)
    known = {source for source, _, _ in partition_keys(counts)}
    if not known:
        raise UsageError(f"{tables.path}: it keeps no index files; kidx build --pack packs them")
    sources = sources_in_catalog(named, known)
    paths = {name: path for name, path in source_paths(tables).items() if name in sources}
    ensure_no_overlap(index_dir, tables.path, as_sources(paths))
    keys = [key for key in partition_keys(counts) if key[0] in sources and pattern.fullmatch(key[1])]
    if not keys:
        raise UsageError(
            f"{tables.path}: no packed index file of a topic that matches {pattern.pattern}; give another --topics"
        )
    keys.sort(key=itemgetter(1, 2, 0))  # as files are sorted
    logs = _logs(tables, sources)
    tasks = [_task(tables.path, key, index_dir, logs[key], by_source=len(sources) > 1) for key in keys]
    size = -(-len(tasks) // (engine.cores * BINS_PER_CORE))
    sizes = tables.read(INDEX_BYTES, ["size_bytes"], [Among("source", sources)])
    file_bytes = int(pc.sum(sizes["size_bytes"]).as_py() or 0)
    begin_phase("writing index files")
    work = Work(
        "unpack",
        [tasks[start : start + size] for start in range(0, len(tasks), size)],
        unpack_partitions,
        UNPACKED,
        is_small=reads_little(file_bytes, sizes.num_rows),
    )
    with engine.stopping():
        staged = engine.run(work)
        interrupts.raise_if_requested()  # files that are written stay; the same command goes on
    unpacked = Unpacked(partitions=len(keys))
    for row in staged.rows("partition").to_pylist():
        for outcome in (Published.WRITTEN.value, Published.UNCHANGED.value):
            unpacked.files[outcome] = unpacked.files.get(outcome, 0) + row[outcome]
        unpacked.file_bytes += row["file_bytes"]
        unpacked.broken += row["broken"]
    return unpacked


def _logs(tables: TablesToRead, sources: Sequence[str]) -> Mapping[PartitionKey, list[tuple[Path, FileVersion]]]:
    """The logs that are on this machine, and which state of them was built, by partition."""
    columns = [*PARTITIONS.key, "log_path", *LogVersion.names()]
    logs: defaultdict[PartitionKey, list[tuple[Path, FileVersion]]] = defaultdict(list)
    rows = tables.read(SEGMENTS, columns, [PRESENT, Among("source", sources)])
    for source, topic, number, log_path, *version in zip(*(rows[name].to_pylist() for name in columns), strict=True):
        path = location(log_path)
        if isinstance(path, Path) and version[0] is not None:
            logs[source, topic, number].append((path, FileVersion(*version)))
    return logs


def _task(
    catalog: str,
    key: PartitionKey,
    index_dir: Location,
    logs: Sequence[tuple[Path, FileVersion]],
    *,
    by_source: bool,
) -> PartitionToUnpack:
    source, topic, number = key
    name = TopicPartition(topic, number).directory
    path = f"{source}/{name}" if by_source else name
    return PartitionToUnpack(key, PackedPath.of_source(catalog, source) / name, Directory(str(index_dir), path), logs)


@dataclass(frozen=True, slots=True)
class PartitionToUnpack:
    """
    Attributes:
        packed: where its files are in the catalog.
        directory: where they go.
        logs: the paths of its logs on this machine, and which state of them was built.
    """

    key: PartitionKey
    packed: PackedPath
    directory: Directory
    logs: Sequence[tuple[Path, FileVersion]]

    def changed_log(self) -> Path | None:
        """A log that is not as it was built. A log that is gone, or cannot be looked at, is none: no broker reads its
        indexes there.
        """
        for path, built in self.logs:
            now = version_at(path)
            if now is not None and now != built:
                return path
        return None


def unpack_partitions(partitions: Iterable[PartitionToUnpack]) -> Iterator[ItemRows]:
    """Rows of `UNPACKED`. Done again, it gives the same files; those that are there are not written again."""
    with Publisher() as publisher:
        waiting: list[UnpackedPartition] = []
        for partition in partitions:
            waiting.append(_staged(partition, publisher))
            if _is_group_staged(publisher):
                yield from _committed(publisher, waiting)
        yield from _committed(publisher, waiting)


def _is_group_staged(publisher: Publisher, more_bytes: int = 1) -> bool:
    """Whether as much is staged as is committed together, or would be with some bytes more."""
    return publisher.staged_files >= GROUP_FILES or publisher.staged_bytes + more_bytes > GROUP_BYTES


def _committed(publisher: Publisher, waiting: list[UnpackedPartition]) -> Iterator[ItemRows]:
    publisher.commit()
    for row in waiting:
        yield ItemRows(rows=[{"partition": row.values()}])
    waiting.clear()


def _staged(partition: PartitionToUnpack, publisher: Publisher) -> UnpackedPartition:
    """Stage a partition's files. The `.index` of a segment comes last, as in a build. A broker that has stopped cleanly
    believes them, and so nothing is staged where a log has changed.
    """
    counts = dict.fromkeys((Published.WRITTEN, Published.UNCHANGED), 0)
    file_bytes, broken = 0, []
    changed = partition.changed_log()
    if changed is not None:
        broken.append(
            f"{changed}: the log has changed since it was built: no file of its partition is written; build again"
        )
    names = {} if changed is not None else partition.packed.sizes()
    for name in sorted(names, key=lambda name: (name.partition(".")[0], name.endswith(OFFSET_INDEX_SUFFIX), name)):
        try:
            content = (partition.packed / name).read_bytes()
        except OSError as error:
            broken.append(f"{partition.packed / name}: {error.strerror}")
            continue
        if _is_group_staged(publisher, len(content)):
            publisher.commit()
        counts[publisher.stage(partition.directory, name, content)] += 1
        file_bytes += len(content)
    return UnpackedPartition(
        **named_key(partition.key),
        written=counts[Published.WRITTEN],
        unchanged=counts[Published.UNCHANGED],
        file_bytes=file_bytes,
        broken=broken,
    )
