"""The producer snapshots of a partition while a broker loads it (`ProducerStateManager`), and what a broker that
stopped cleanly forgets where none is left (`UnifiedLog.rebuildProducerState`).

A clean stop leaves a snapshot at the end of each log that has a record. A broker that finds none at all takes that for
an upgrade from a release without producers: it reads no log, and notes that there are none. Where one is left, or the
stop was unclean, it reads the log from there on, and knows them all.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from kidxlib.audit.startup.checkpoints import offset_of
from kidxlib.errors import SnapshotError
from kidxlib.format import segment_files
from kidxlib.format.producer_snapshot import read_snapshot
from kidxlib.recovery.partition_fold import PartitionFold, StateSource
from kidxlib.storage.location import Listed, Location
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE, small_file
from kidxlib.text.words import counted, shell_option


class ProducerSnapshots:
    """The producer snapshots of a partition: by offset, whether a broker can read the snapshot."""

    def __init__(self, is_good: Mapping[int, bool] | None = None) -> None:
        self._is_good = dict(is_good or {})

    @classmethod
    def of_files(cls, files: Mapping[str, Listed]) -> Self:
        return cls(
            {
                offset: _is_readable_snapshot(file)
                for name, file in files.items()
                if name.endswith(segment_files.SNAPSHOT_SUFFIX) and (offset := offset_of(name)) is not None
            }
        )

    def __len__(self) -> int:
        return len(self._is_good)

    def take(self, offset: int) -> int:
        """A broker writes a snapshot at an offset. Returns the offset."""
        self._is_good[offset] = True
        return offset

    def remove(self, offset: int) -> None:
        self._is_good.pop(offset, None)

    def clear(self) -> None:
        self._is_good.clear()

    def keep_within(self, log_start_offset: int, end: int) -> None:
        """Snapshots go that are not above the log start offset, or are above the log end offset."""
        self._keep_only(lambda offset: log_start_offset < offset <= end)

    def load_last(self) -> int | None:
        """The offset of the last readable snapshot; None if none is readable. Snapshots after it are removed."""
        while self._is_good:
            last = max(self._is_good)
            if self._is_good[last]:
                return last
            del self._is_good[last]
        return None

    def remove_strays(self, base_offsets: Sequence[int]) -> None:
        """Snapshots go that are at no segment's base offset, except the last one if it is after all segments
        (`removeStraySnapshots`).
        """
        strays = [offset for offset in self._is_good if offset not in base_offsets]
        last = max(strays, default=None)
        self._keep_only(lambda offset: offset in base_offsets or (offset == last and offset >= max(base_offsets)))

    def _keep_only(self, is_kept: Callable[[int], bool]) -> None:
        self._is_good = {offset: good for offset, good in self._is_good.items() if is_kept(offset)}


def _is_readable_snapshot(file: Listed) -> bool:
    try:
        read_snapshot(small_file(file))
    except SnapshotError:
        return False
    return True


def forgotten_producers(fold: PartitionFold, directory: Location) -> str | None:
    """What a broker forgets that finds no producer snapshot after a clean stop, and what to do; None where the log has
    no producers.
    """
    count, open_ones = len(read_snapshot(fold.end_snapshot)), fold.ongoing
    if not count:
        return None
    served = ""
    if open_ones:
        served = (
            f", and records of {counted(len(open_ones), 'open transaction')} (from offset {min(open_ones)} on) are "
            "served as if committed"
        )
    return (
        f"no producer snapshot after a clean stop; a broker that starts forgets {counted(count, 'producer')} of this "
        f"log: a batch that one sends again is there twice{served}; {_remedy_of_missing_snapshot(fold, directory)}"
    )


def _remedy_of_missing_snapshot(fold: PartitionFold, directory: Location) -> str:
    if fold.end_source is StateSource.UNKNOWN:  # a build writes no snapshot then
        return (
            f"remove {CLEAN_SHUTDOWN_FILE} in all log dirs of the broker, which then learns of them from the log, as "
            "after a crash: the log begins above offset 0 or has gaps, so kidx build does not make a snapshot"
        )
    topic = directory.name.rpartition("-")[0]
    log_dir, topics = shlex.quote(str(directory.parent)), shell_option("--topics", topic.replace(".", r"\."))
    return f"make it from the log: kidx build {log_dir} --in-place --snapshots {topics}"
