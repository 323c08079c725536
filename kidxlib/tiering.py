"""What keeps segments from tiered storage: Kafka's `RemoteLogManager` copies a segment with all that belongs to it.

`copyLogSegment` needs the offset and the time index, the producer snapshot at the next segment's base offset (without
one it fails with a NullPointerException and the partition's uploads stand still, KAFKA-16209) and an epoch for the
segment's offsets (`RemoteLogSegmentMetadata` refuses none). It looks into none of them. What is wrong is found by who
fetches from the tier.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kidxlib import names
from kidxlib.audit import Finding, Verdict
from kidxlib.epochs import LeaderEpochs


@dataclass(frozen=True, slots=True)
class NotReady:
    """A segment that is not ready to be copied.

    Attributes:
        missing: what is missing or broken, one each.
    """

    base_offset: int
    missing: tuple[str, ...]


def not_ready_for_tiering(
    base_offsets: Sequence[int],
    logs: Mapping[int, Finding],
    broken: Mapping[tuple[int, str], Finding],
    snapshots: Collection[int],
    epochs: LeaderEpochs | None,
) -> Iterator[NotReady]:
    """The inactive segments of a partition that are not ready.

    Args:
        base_offsets: of its segments, ascending; the last one is active.
        logs: what is said of their logs.
        broken: other files, by the offset in their name and their suffix.
        snapshots: offsets of the producer snapshots that are there.
        epochs: what the leader epoch checkpoint says; None where there is none that can be read.
    """
    for base_offset, next_base_offset in itertools.pairwise(base_offsets):
        missing = []
        log = logs.get(base_offset)
        if log is None:
            missing.append(f"{names.LOG_SUFFIX} is not there any more")
        elif log.verdict not in (Verdict.WHOLE, Verdict.SAFE):
            missing.append(f"{names.LOG_SUFFIX} is {log.verdict}: {log.reason}")
        missing += [
            f"{suffix} is {_how(broken[base_offset, suffix])}"
            for suffix in (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TRANSACTION_INDEX_SUFFIX)
            if (base_offset, suffix) in broken
        ]
        snapshot = f"{names.SNAPSHOT_SUFFIX} at {next_base_offset}"
        if next_base_offset not in snapshots:
            missing.append(f"{snapshot} is missing")
        elif (finding := broken.get((next_base_offset, names.SNAPSHOT_SUFFIX))) is not None:
            missing.append(f"{snapshot} is {_how(finding)}")
        if epochs is None or not epochs.within(base_offset, next_base_offset).entries:
            missing.append(f"{names.LEADER_EPOCH_CHECKPOINT} has no epoch before {next_base_offset}")
        if missing:
            yield NotReady(base_offset, tuple(missing))


def _how(finding: Finding) -> str:
    return "missing" if finding.reason == "missing" else f"broken: {finding.reason}"
