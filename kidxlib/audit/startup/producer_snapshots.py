"""The producer snapshots of a partition while a broker loads it (`ProducerStateManager`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Self

from kidxlib.audit.startup.partition_files import offset_of
from kidxlib.errors import SnapshotError
from kidxlib.format import segment_files
from kidxlib.format.producer_snapshot import read_snapshot
from kidxlib.storage.location import Location


class ProducerSnapshots:
    """Offsets of producer snapshots, and whether each can be read."""

    def __init__(self, is_good: Mapping[int, bool] | None = None) -> None:
        """
        Args:
            is_good: by offset, whether a broker can read it; None for no snapshots.
        """
        self._is_good = dict(is_good or {})

    @classmethod
    def of_files(cls, files: Mapping[str, Location]) -> Self:
        """The producer snapshots among the files of a partition.

        Raises:
            OSError: one cannot be read.
        """
        return cls(
            {
                offset: _is_snapshot(path)
                for name, path in files.items()
                if name.endswith(segment_files.SNAPSHOT_SUFFIX) and (offset := offset_of(name)) is not None
            }
        )

    def __len__(self) -> int:
        return len(self._is_good)

    def take(self, offset: int) -> int:
        """Take a snapshot as a broker does, and return its offset."""
        self._is_good[offset] = True
        return offset

    def remove(self, offset: int) -> None:
        """Remove the snapshot at an offset, if there is one."""
        self._is_good.pop(offset, None)

    def clear(self) -> None:
        self._is_good.clear()

    def keep_within(self, log_start_offset: int, end: int) -> None:
        """Remove snapshots that are not above the log start offset, or are above the log end offset."""
        self._keep(lambda offset: log_start_offset < offset <= end)

    def load_last(self) -> int | None:
        """The offset of the last readable snapshot; None if none is readable. Snapshots after it are removed."""
        while self._is_good:
            last = max(self._is_good)
            if self._is_good[last]:
                return last
            del self._is_good[last]
        return None

    def remove_strays(self, base_offsets: Sequence[int]) -> None:
        """Remove snapshots at no segment's base offset, except the last one if it is after all segments
        (`removeStraySnapshots`).
        """
        strays = [offset for offset in self._is_good if offset not in base_offsets]
        last = max(strays, default=None)
        self._keep(lambda offset: offset in base_offsets or (offset == last and offset >= max(base_offsets)))

    def _keep(self, is_kept: Callable[[int], bool]) -> None:
        self._is_good = {offset: good for offset, good in self._is_good.items() if is_kept(offset)}


def _is_snapshot(path: Location) -> bool:
    try:
        read_snapshot(path.read_bytes())
    except SnapshotError:
        return False
    return True
