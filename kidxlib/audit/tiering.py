"""Finds out what keeps segments from being copied to tiered storage. Kafka's `RemoteLogManager` copies a segment
together with its index files, snapshot and leader epochs.

`copyLogSegment` needs the producer snapshot at the next segment's base offset (without one it fails with a
NullPointerException and the partition's uploads stand still, KAFKA-16209) and an epoch for the segment's offsets
(`RemoteLogSegmentMetadata` refuses none). It checks neither the content of files nor whether indexes are there. If an
index is missing that a running broker has not opened yet, it makes one full of zeros and copies that. The error shows
only when somebody fetches from the tier. It copies no segment that reaches beyond the last stable offset
(`RLMCopyTask.candidateLogSegments`).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.format import checkpoint_files, segment_files
from kidxlib.format.checkpoint_files import LeaderEpochs


@dataclass(frozen=True, slots=True)
class NotReady:
    """A segment that is not ready to be copied.

    Attributes:
        base_offset: the offset in its file names.
        missing: the missing or broken files, and what the copy waits for, in words.
    """

    base_offset: int
    missing: tuple[str, ...]


def not_ready_for_tiering(
    base_offsets: Sequence[int],
    logs: Mapping[int, Finding],
    broken: Mapping[tuple[int, str], str | None],
    snapshots: Collection[int],
    epochs: LeaderEpochs | None,
    first_unstable_offset: int | None,
) -> Iterator[NotReady]:
    """The inactive segments of a partition that are not ready. `base_offsets` ascend, and name segments whose log is
    missing, too; the last one is active. `broken` says why other files are, by offset and suffix. The first transaction
    that is open at the end of the log begins at `first_unstable_offset`.
    """
    for base_offset, next_base_offset in itertools.pairwise(base_offsets):
        missing = []
        log = logs.get(base_offset)
        if log is None:
            missing.append(f"{segment_files.LOG_SUFFIX} is missing")
        elif log.verdict not in (Verdict.WHOLE, Verdict.SAFE):
            missing.append(f"{segment_files.LOG_SUFFIX} is {log.verdict}: {log.reason}")
        missing += [
            f"{suffix} is {_missing_or_broken(broken[base_offset, suffix])}"
            for suffix in (
                segment_files.OFFSET_INDEX_SUFFIX,
                segment_files.TIME_INDEX_SUFFIX,
                segment_files.TRANSACTION_INDEX_SUFFIX,
            )
            if (base_offset, suffix) in broken
        ]
        snapshot = f"{segment_files.SNAPSHOT_SUFFIX} at {next_base_offset}"
        if next_base_offset not in snapshots:
            missing.append(f"{snapshot} is missing")
        elif (of_snapshot := (next_base_offset, segment_files.SNAPSHOT_SUFFIX)) in broken:
            missing.append(f"{snapshot} is {_missing_or_broken(broken[of_snapshot])}")
        if epochs is None or not epochs.within(base_offset, next_base_offset).entries:
            missing.append(f"{checkpoint_files.LEADER_EPOCH_CHECKPOINT} has no epoch before {next_base_offset}")
        if first_unstable_offset is not None and next_base_offset > first_unstable_offset:
            missing.append(
                f"a transaction has been open since offset {first_unstable_offset}, and Kafka copies nothing past that"
            )
        if missing:
            yield NotReady(base_offset, tuple(missing))


def _missing_or_broken(reason: str | None) -> str:
    return "missing" if reason == "missing" else f"broken: {reason}"
