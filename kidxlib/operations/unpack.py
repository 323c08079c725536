"""Writes packed index files as single files, byte for byte (`unpack`), where no log has changed since it was built."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

import pyarrow.compute as pc

from kidxlib.catalog.conditions import PRESENT, Among
from kidxlib.catalog.index_bytes import INDEX_BYTES
from kidxlib.catalog.partitions import PARTITIONS, partition_keys
from kidxlib.catalog.results import UNPACKED, UnpackedPartition
from kidxlib.catalog.segments import SEGMENTS, LogVersion
from kidxlib.engine.work import ItemRows, Work, reads_little
from kidxlib.errors import UsageError
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX
from kidxlib.format.topic_partition import PartitionKey, TopicPartition
from kidxlib.indexing.bins import BINS_PER_CORE
from kidxlib.indexing.directories import ensure_no_overlap
from kidxlib.indexing.segments import GROUP_BYTES, GROUP_FILES
from kidxlib.operations.backend import Backend
from kidxlib.run.sources import as_sources, source_paths, sources_in_catalog
from kidxlib.storage.location import Directory, FileVersion, Location, location, version_at
from kidxlib.storage.packed import PackedPath
from kidxlib.storage.publisher import Published, Publisher
from kidxlib.tables.protocol import TablesToRead
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import begin_phase


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


def unpack_partitions(partitions: Iterable[PartitionToUnpack]) -> Iterator[ItemRows]:
    """Rows of `UNPACKED`. Done again, it gives the same files; those that are there are not written again."""
    with Publisher() as publisher:
        waiting: list[UnpackedPartition] = []
        for partition in partitions:
            waiting.append(_staged(partition, publisher))
            if publisher.staged_files >= GROUP_FILES or publisher.staged_bytes >= GROUP_BYTES:
                yield from _committed(publisher, waiting)
        yield from _committed(publisher, waiting)


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
        if publisher.staged_bytes + len(content) > GROUP_BYTES or publisher.staged_files >= GROUP_FILES:
            publisher.commit()
        counts[publisher.stage(partition.directory, name, content)] += 1
        file_bytes += len(content)
    source, topic, number = partition.key
    return UnpackedPartition(
        source=source,
        topic=topic,
        partition=number,
        written=counts[Published.WRITTEN],
        unchanged=counts[Published.UNCHANGED],
        file_bytes=file_bytes,
        broken=broken,
    )


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
    ensure_no_overlap(index_dir, tables.path, as_sources(_paths(source_paths(tables), sources)))
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


def _paths(paths: Mapping[str, str], sources: Sequence[str]) -> dict[str, str]:
    return {name: path for name, path in paths.items() if name in sources}


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
