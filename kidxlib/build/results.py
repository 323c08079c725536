"""The results of a build for segments and partitions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kidxlib.build.tasks import BuildTask, PartitionTask
from kidxlib.index.file import IndexFile
from kidxlib.recovery.outcome import ScanEnd
from kidxlib.recovery.partition import FoldState, StateSource
from kidxlib.recovery.segment import RecoveredSegment
from kidxlib.storage.file_version import FileVersion
from kidxlib.storage.publisher import Published
from kidxlib.storage.ranged_log import Reads


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedSegment:
    """The result of finishing a segment that exists in the source.

    Attributes:
        state_source: where the producers' state at its base offset comes from.
        aborted: the transactions aborted in it, of dtype `formats.ABORTED_TRANSACTION`.
        failure: why Kafka fails on its producers or leader epochs; its index files are withdrawn then.
        published: what was done with its `.txnindex`; `NONE` where there is none and need not be.
        transaction_index_bytes, transaction_index_crc32c: of the file as published; None where there is none.
    """

    base_offset: int
    state_source: StateSource
    aborted: NDArray[np.void]
    failure: ScanEnd | None
    published: Published
    transaction_index_bytes: int | None
    transaction_index_crc32c: int | None


@dataclass(frozen=True, slots=True)
class FinishedPartition:
    """The result of finishing a partition.

    Attributes:
        segments: by base offset.
        kept: names of snapshots and checkpoints that stay as they are, because no better ones are certain.
        states: what the segments led to, before the last one and after it, so far as that can be told.
    """

    task: PartitionTask
    segments: tuple[FinishedSegment, ...]
    kept: tuple[str, ...]
    states: tuple[FoldState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSegment:
    """The result of reading and indexing one segment.

    Attributes:
        version: the log as it was when it was read; as it was listed, if it was not opened.
        recovered: None where the log was not read to the end (`end.status` is `unreadable` or `changed`).
        offset_index, time_index: None if there is none; of a segment with problems, whatever file exists.
        reads: requests and bytes that reading the log took, if it is an object; None if it is a file or was not opened.
    """

    task: BuildTask
    version: FileVersion | None
    end: ScanEnd
    recovered: RecoveredSegment | None
    published: Published
    offset_index: IndexFile | None = None
    time_index: IndexFile | None = None
    reads: Reads | None = None
