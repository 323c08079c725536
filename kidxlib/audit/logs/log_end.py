"""Logs that end below the offset that the broker's own checkpoints, or their indexes, say that they had."""

from __future__ import annotations

from collections.abc import Iterator

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.logs.log import AuditedLog
from kidxlib.audit.startup.last_stop import PartitionStop, below_checkpoints
from kidxlib.audit.startup.recovery import Recovery
from kidxlib.format import checkpoint_files, segment_files


def of_log_end(recovery: Recovery, stop: PartitionStop) -> Iterator[Finding]:
    """The finding on where the last log of a partition ends."""
    found = below_checkpoints(recovery.next_offset, recovery.end.position, stop)
    if found is not None:
        yield found
        return
    # `LogManager.shutdown` flushes all, and then writes the checkpoint and the file of a clean stop.
    if stop.clean_shutdown and 0 < stop.recovery_point < recovery.next_offset:
        yield Finding(
            file=segment_files.LOG_SUFFIX,
            verdict=Verdict.SAFE,
            reason="ends-above-recovery-point",
            position=recovery.end.position,
            detail=f"the log ends at offset {recovery.next_offset}, {checkpoint_files.RECOVERY_POINT_CHECKPOINT} says "
            f"{stop.recovery_point}",
            consequence="a clean stop leaves both at one offset: the log was changed since, the checkpoint is older, "
            "or the marker is false",
        )


def of_index_end(log: AuditedLog, recovery: Recovery, following: int | None, stop: PartitionStop) -> Iterator[Finding]:
    """The finding on a log that was longer when its index was written. After an unclean stop the last log may be so,
    because the index may have been flushed before the log: torn, between two batches. If nothing is missing up to the
    next segment, the index is wrong.
    """
    entry = log.index_end
    if entry is None or entry.position < recovery.log_bytes or entry.offset < recovery.next_offset:
        return
    if following is not None and entry.offset >= following:
        return
    is_torn = following is None and not stop.clean_shutdown
    missing = f"offsets from {recovery.next_offset} up to {entry.offset} or above are missing"
    yield Finding(
        file=segment_files.LOG_SUFFIX,
        verdict=Verdict.TORN if is_torn else Verdict.BROKEN,
        reason="shorter-than-its-index",
        position=recovery.log_bytes,
        detail=f"the log has {recovery.log_bytes} bytes and ends at offset {recovery.next_offset}, its .index has "
        f"an entry for offset {entry.offset} at byte {entry.position}",
        consequence=f"{missing}, and a broker that starts goes on without them: look for them on another replica"
        if is_torn
        else missing,
    )
