"""Answers many questions for an offset or a time, one partition at a time.

The answers are those of `Log` and `LogSegment`, and so of a broker; but index lookups and walks over batch headers are
made for many targets at once, and a batch is decompressed once for all targets in it. What prevents an answer is not
raised: it becomes the answer's note.
"""

from __future__ import annotations

from os import PathLike
from typing import Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from kidxlib.errors import UsageError
from kidxlib.log.list_offsets import EARLIEST_PENDING_UPLOAD, LATEST
from kidxlib.log.log import Log
from kidxlib.lookup.answers import Answers
from kidxlib.lookup.by_offset import answer_offsets
from kidxlib.lookup.by_time import answer_timestamps
from kidxlib.lookup.checked_segment import CheckedSegment
from kidxlib.lookup.columns import OFFSET
from kidxlib.lookup.largest_timestamps import LargestTimestamps
from kidxlib.lookup.remarks import remark_on_times
from kidxlib.lookup.row_groups import Longs, groups
from kidxlib.lookup.special_targets import answer_special

_LONG_MAX: Final = 2**63 - 1


class Seeker:
    """Answers questions to one partition.

    n questions have an answer of n rows, in the order of the questions, with these columns:

    - `found`: bool; whether there is such a batch or record.
    - `answered`: bool; whether `found` is certain. It is false where a file that the answer depends on is damaged,
      missing, or not the recorded one.
    - `segment_base_offset`, `position`, `batch_base_offset`: int64; the segment, the byte of its log where the batch
      starts, the batch's first offset.
    - `offset`, `timestamp`: int64; the record that was found for a time, null for an offset.
    - `leader_epoch`: int32; of the batch, null where it has none.
    - `bytes_read`: int64; the bytes of logs that this question read.
    - `note`: string; why nothing was found, or which problem was met.
    - `file_error`: bool; whether the note is about a file that is not as it should be.

    Attributes:
        log: its segments.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self._base_offsets = np.array([segment.base_offset for segment in log.segments], np.int64)
        self._largest = LargestTimestamps(log)

    @classmethod
    def of_directory(
        cls,
        directory: str | PathLike[str],
        index_directory: str | PathLike[str] | None = None,
        *,
        log_start_offset: int = 0,
    ) -> Self:
        """A seeker for the log in a partition's directory.

        Args:
            directory, index_directory: as for `Log.open`.
            log_start_offset: from the broker's checkpoint file; 0 if it has none.

        Raises:
            NoSegmentsError: there are none.
            CheckpointError: the `leader-epoch-checkpoint` is malformed.
            OSError: a directory cannot be listed, or a file cannot be looked at.
        """
        return cls(Log.open(directory, index_directory, log_start_offset=log_start_offset, segment_type=CheckedSegment))

    def offsets(self, targets: ArrayLike) -> pa.RecordBatch:
        """Where a fetch from each offset starts: `segment_base_offset`, `position`, `batch_base_offset` and
        `leader_epoch` of the batch. In an offset gap that is the next batch.

        Args:
            targets: offsets, an array of shape (n,) of whole numbers, or a list of them. It is fastest if they are
                sorted.

        Returns:
            n rows with the columns of this class.

        Raises:
            UsageError: targets are no whole numbers of 64 bits, or not of that shape. No error of a file is raised: it
                is the answer's note.
        """
        wanted = _whole_numbers(targets)
        answers = Answers(len(wanted))
        answer_offsets(self.log, self._base_offsets, wanted, answers)
        return answers.to_arrow()

    def timestamps(self, targets: ArrayLike) -> pa.RecordBatch:
        """The first record with each timestamp or a later one, as `ListOffsets` answers: `offset`, `timestamp` and
        `leader_epoch`, and where its batch lies.

        Args:
            targets: ms since the epoch, or what stands for a special target (see `Log.fetch_offset_by_timestamp`): an
                array of shape (n,) of whole numbers, or a list of them. It is fastest if they are sorted.

        Returns:
            n rows with the columns of this class.

        Raises:
            UsageError: as `offsets`.
        """
        wanted = _whole_numbers(targets)
        answers = Answers(len(wanted))
        is_special = (wanted <= LATEST) & (wanted >= EARLIEST_PENDING_UPLOAD)
        special, rest = np.flatnonzero(is_special), np.flatnonzero(~is_special)
        for target, rows in groups(wanted[special], special):
            answer_special(self.log, target, rows, answers)
        answer_timestamps(self.log, self._largest, rest, wanted, answers)
        remark_on_times(self.log, rest, wanted, answers)
        return answers.to_arrow()


def _whole_numbers(targets: ArrayLike) -> Longs:
    """
    Raises:
        UsageError: they are none, or not of shape (n,).
    """
    try:
        given = np.asarray(targets)
    except ValueError as error:
        raise UsageError(f"targets: expected an array of whole numbers, of shape (n,): {error}") from error
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise UsageError(
            f"targets of shape {given.shape} and type {given.dtype}: expected whole numbers of 64 bits, of shape (n,)"
        )
    if given.dtype.kind == "u" and given.size and given.max() > _LONG_MAX:
        raise UsageError(f"target {given.max()}: expected {_LONG_MAX} at most, as Kafka's offsets and times")
    return given.astype(np.int64, copy=False)


def answer_all(partition: Seeker | str, query: str, targets: Longs) -> pa.RecordBatch:
    """Answer targets of one kind, `offset` or `timestamp`, as rows of `ANSWER`.

    Args:
        partition: the seeker that answers, or the reason why none can.
    """
    if isinstance(partition, Seeker):
        return partition.offsets(targets) if query == OFFSET else partition.timestamps(targets)
    return unanswered(len(targets), partition)


def unanswered(count: int, file_error: str) -> pa.RecordBatch:
    """That many rows of `ANSWER`, all with the reason why there is no answer."""
    answers = Answers(count)
    answers.unsure(np.arange(count), file_error)
    return answers.to_arrow()
