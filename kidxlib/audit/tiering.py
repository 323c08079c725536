"""What keeps segments from tiered storage. Kafka's `RemoteLogManager` copies a segment with all the files that belong
to it.

`copyLogSegment` needs the producer snapshot at the next segment's base offset (without one it fails with a
NullPointerException and the partition's uploads stand still, KAFKA-16209) and an epoch for the segment's offsets
(`RemoteLogSegmentMetadata` refuses none). It checks the content of none, and whether indexes are there: one that a
running broker has not opened yet it makes anew, full of zeros, and copies that. Whoever fetches from the tier finds
what is wrong. It copies nothing that reaches beyond the last stable offset (`RLMCopyTask.candidateLogSegments`).
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
        missing: the files that are missing or broken, and what it waits for.
    """

    base_offset: int
    missing: tuple[str, ...]


def not_ready_for_tiering(
    base_offsets: Sequence[int],
    logs: Mapping[int, Finding],
    broken: Mapping[tuple[int, str], str | None],
    snapshots: Collection[int],
    epochs: LeaderEpochs | None,
    first_unstable_offset: int | None = None,
) -> Iterator[NotReady]:
    """The inactive segments of a partition that are not ready.

    Args:
        base_offsets: of its segments, ascending, with those of which the log is missing; the last one is active.
        logs: what is said of their logs.
        broken: why other files are broken, by the offset in their name and their suffix.
        snapshots: offsets of the producer snapshots that are there.
        epochs: what the leader epoch checkpoint says; None where there is none that can be read.
        first_unstable_offset: where the first transaction begins that is open at the end of the log; None where none
            is.
    """
    for base_offset, next_base_offset in itertools.pairwise(base_offsets):
        missing = []
        log = logs.get(base_offset)
        if log is None:
            missing.append(f"{segment_files.LOG_SUFFIX} is missing")
        elif log.verdict not in (Verdict.WHOLE, Verdict.SAFE):
            missing.append(f"{segment_files.LOG_SUFFIX} is {log.verdict}: {log.reason}")
        missing += [
            f"{suffix} is {_how(broken[base_offset, suffix])}"
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
            missing.append(f"{snapshot} is {_how(broken[of_snapshot])}")
        if epochs is None or not epochs.within(base_offset, next_base_offset).entries:
            missing.append(f"{checkpoint_files.LEADER_EPOCH_CHECKPOINT} has no epoch before {next_base_offset}")
        if first_unstable_offset is not None and next_base_offset > first_unstable_offset:
            missing.append(
                f"a transaction has been open since offset {first_unstable_offset}, and Kafka copies nothing past that"
            )
        if missing:
            yield NotReady(base_offset, tuple(missing))


def _how(reason: str | None) -> str:
    return "missing" if reason == "missing" else f"broken: {reason}"
