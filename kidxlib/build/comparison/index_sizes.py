"""Sizes of index files, as they are on disk or in a store."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from kidxlib.build.listed import Longs, partitions_of, runs_of_partitions
from kidxlib.build.plan import Plan
from kidxlib.format.segment_files import segment_file
from kidxlib.storage.directory import Directory, object_sizes
from kidxlib.storage.store.at_once import in_order
from kidxlib.storage.store.s3 import is_object

#: In the place of the size of a file that cannot be looked at.
NOT_SEEN: Final = -1


class IndexSizes:
    """Sizes of the index files of a plan's segments, in bytes. A link is not followed.

    Only files that are asked for are looked at, one by one in their open directory: to list it takes longer, as each
    file has to be looked at all the same. A directory of a store is listed, once: that saves a request for each file.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._listed: dict[Directory, dict[str, int]] = {}

    def of(self, rows: pa.Table, suffixes: Sequence[str]) -> list[Longs]:
        """For each suffix, the sizes of these files, a row each; `NOT_SEEN` where one cannot be looked at.

        Args:
            rows: of `LISTED`, in order.
        """
        sizes = np.full((rows.num_rows, len(suffixes)), NOT_SEEN, np.int64)
        self._list(self._plan.partitions[number].index_directory for number in np.unique(partitions_of(rows)).tolist())
        start = 0
        for number, of_partition in runs_of_partitions(rows):
            base_offsets = of_partition["base_offset"].to_numpy().tolist()
            end = start + len(base_offsets)
            found = self._of_partition(self._plan.partitions[number].index_directory, base_offsets, suffixes)
            sizes[start:end] = np.array(found, np.int64).reshape(end - start, len(suffixes))
            start = end
        return [sizes[:, column] for column in range(len(suffixes))]

    def _list(self, directories: Iterable[Directory]) -> None:
        """List those in object stores that are not listed yet, several at a time."""
        new = [each for each in directories if is_object(each.root) and each not in self._listed]
        self._listed.update(zip(new, in_order(object_sizes, new), strict=True))

    def _of_partition(self, directory: Directory, base_offsets: Sequence[int], suffixes: Sequence[str]) -> list[int]:
        beginnings = [segment_file(base_offset, "") for base_offset in base_offsets]
        names = [beginning + suffix for beginning in beginnings for suffix in suffixes]
        if is_object(directory.root):
            listed = self._listed[directory]
            return [listed.get(name, NOT_SEEN) for name in names]
        try:
            descriptor = os.open(str(directory), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return [NOT_SEEN] * len(names)
        try:
            return [_size_of(name, descriptor) for name in names]
        finally:
            os.close(descriptor)


def _size_of(name: str, directory: int) -> int:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_size
    except OSError:
        return NOT_SEEN
