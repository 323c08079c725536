"""The states that earlier builds have left of partitions, and which of them this build may go on from.

A state is good for as long as the segments that led to it are what they were. Their rows tell: how many there are, how
many have no problems, and a digest of their logs' versions. So neither a segment that was read again, nor one that
vanished amid others, nor another run that wrote the state meanwhile has to say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.build.changes import PartitionChange
from kidxlib.build.comparison.known_segments import flags_of
from kidxlib.build.listed import Longs, numbers_in
from kidxlib.build.tasks import PartitionTask
from kidxlib.catalog.matching import Flags, Positions, positions_in
from kidxlib.catalog.partitions import FoldedLogs, PartitionStateRow
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.build.finishing.finish_work import PartitionToFinish
from kidxlib.operations.build.finishing.state_rows import state_of

#: The columns of a segment that say which log led to its events.
OF_LOG_VERSION: Final = ("base_offset", "next_offset", "log_bytes", "log_mtime_ns")

#: 2⁶⁴ divided by the golden ratio: an odd number whose bits have no pattern.
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_NONE: Final = -1
#: Below every base offset: no state is good.
_FROM_THE_START: Final = np.iinfo(np.int64).min


class KeptStates:
    """Some partitions, each with the best state that it can be folded from.

    Args:
        keys: of the partitions; a partition's number is its position here.
        heads: all segments that these are folded from, in any order, with `problem_free`, `present` and
            `OF_LOG_VERSION`.
        partitions: of each of the segments, the number of its partition.
        changes: of each partition.
        states: rows of `partition_states`, also of other partitions.

    Attributes:
        heads: the same rows, by partition and base offset.
        is_folded: which of them are folded; those before are spared by a state.
    """

    def __init__(
        self,
        keys: Sequence[PartitionKey],
        heads: pa.Table,
        partitions: Positions,
        changes: Sequence[PartitionChange],
        states: pa.Table,
    ) -> None:
        self._numbers = {key: number for number, key in enumerate(keys)}
        self._states = states
        order = np.lexsort((heads["base_offset"].to_numpy(), partitions))
        self.heads, self._partitions = heads.take(order), partitions[order]
        self._base_offsets: Longs = self.heads["base_offset"].to_numpy()
        self._present = flags_of(self.heads["present"])
        #: Of each partition the first row, and at the end the number of rows.
        self._bounds = np.searchsorted(self._partitions, np.arange(len(keys) + 1))
        self._logs = self._logs_up_to_each()
        self._state_of, self._last_of = self._best(changes)
        self.is_folded: Flags = np.arange(len(order)) > self._last_of[self._partitions]

    def partition_to_finish(self, key: PartitionKey, task: PartitionTask) -> PartitionToFinish | None:
        """A partition with what it is folded from; None where the catalog has no segment of it any more.

        Args:
            task: of the whole partition.
        """
        number = self._numbers[key]
        first, end = int(self._bounds[number]), int(self._bounds[number + 1])
        folded_from = max(first, int(self._last_of[number]) + 1)
        if folded_from == end:
            return None
        if folded_from > first:
            before = slice(first, folded_from)
            earlier = self._base_offsets[before][self._present[before]].tolist()
            [row] = PartitionStateRow.of_arrow(self._states.slice(int(self._state_of[number]), 1))
            task = replace(task, start=state_of(row), earlier=earlier)
        # The last two: a state is kept after each of them.
        logs = {
            int(self._base_offsets[row]): FoldedLogs.of({name: int(column[row]) for name, column in self._logs.items()})
            for row in range(max(first, end - 2), end)
        }
        return PartitionToFinish(task, logs)

    def _best(self, changes: Sequence[PartitionChange]) -> tuple[Positions, Positions]:
        """The states with the most segments, and the rows of the last ones of these, by the number of the partition; −1
        where there is none.
        """
        since = [_FROM_THE_START if each.changed_from is None else each.changed_from for each in changes]
        rows = positions_in(self._states, self.heads, SEGMENTS.key)
        states = np.flatnonzero(rows >= 0)
        rows = rows[states]
        partitions = self._partitions[rows]
        good: Flags = self._base_offsets[rows] < np.array(since, np.int64)[partitions]
        for name, column in self._logs.items():
            good &= self._states[name].to_numpy()[states] == column[rows]
        order = np.argsort(rows[good], kind="stable")  # of a partition's the last one stays
        state_of, last_of = np.full(len(since), _NONE, np.int64), np.full(len(since), _NONE, np.int64)
        state_of[partitions[good][order]] = states[good][order]
        last_of[partitions[good][order]] = rows[good][order]
        return state_of, last_of

    def _logs_up_to_each(self) -> dict[str, Longs]:
        """What `FoldedLogs` says of the segments from the first one of a partition to each, by its columns."""
        summed = np.ones(len(self._partitions), np.int64), self.heads["problem_free"], _digests(self.heads)
        first = self._bounds[self._partitions]
        found = {}
        for name, column in zip(FoldedLogs.names(), summed, strict=True):
            sums = np.cumsum(np.asarray(column).astype(np.int64))
            found[name] = sums - np.concatenate([np.zeros(1, np.int64), sums])[first]
        return found


def _digests(heads: pa.Table) -> NDArray[np.uint64]:
    digests = np.zeros(heads.num_rows, np.uint64)
    for name in OF_LOG_VERSION:
        numbers, is_known = numbers_in(heads[name])
        digests ^= np.where(is_known, numbers, _NONE).view(np.uint64)
        digests *= _FACTOR
        digests ^= digests >> np.uint64(29)
    return digests
