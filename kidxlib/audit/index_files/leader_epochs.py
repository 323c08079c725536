"""Checks a `leader-epoch-checkpoint`. A broker believes this file without looking at the log."""

from __future__ import annotations

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.leader_epochs import EpochEntry, LeaderEpochs


def audit_epochs(found: LeaderEpochs | None, expected: LeaderEpochs, *, all_are_known: bool) -> Finding:
    """The finding on a `leader-epoch-checkpoint`.

    Args:
        found: what it says; None where there is none.
        expected: what recovery makes of the batches.
        all_are_known: the logs reach back to the start.
    """
    entries = () if found is None else found.entries
    if entries == expected.entries:
        return Finding(file=LEADER_EPOCH_CHECKPOINT, verdict=Verdict.IDENTICAL)
    at = {entry.epoch: entry.start_offset for entry in entries}
    for number, entry in enumerate(expected.entries):
        begun = at.get(entry.epoch)
        earliest = expected.entries[number - 1].start_offset + 1 if number else 0
        if begun is None or not earliest <= begun <= entry.start_offset:
            return Finding(
                file=LEADER_EPOCH_CHECKPOINT,
                verdict=Verdict.BROKEN,
                reason="missing-epoch" if begun is None else "wrong-start-offset",
                detail=f"epoch {entry.epoch} {_where(begun)}, its first batch is at {entry.start_offset}",
                consequence="replicas that compare epochs truncate their logs at a wrong offset",
            )
    more = [entry for entry in entries if entry.epoch not in {known.epoch for known in expected.entries}]
    after = [entry for entry in more if not _fits(entry, expected.entries)]
    if after and all_are_known:
        return Finding(
            file=LEADER_EPOCH_CHECKPOINT,
            verdict=Verdict.BROKEN,
            reason="epoch-amid-another",
            detail=f"epoch {after[0].epoch} begins at {after[0].start_offset}, where the log has another",
            consequence="replicas that compare epochs truncate their logs at a wrong offset",
        )
    reason, why = (
        ("epochs-without-batches", "their leaders wrote nothing that is left")
        if more
        else ("earlier-starts", "compaction or retention may have removed the first batches of an epoch")
    )
    return Finding(
        file=LEADER_EPOCH_CHECKPOINT,
        verdict=Verdict.SAFE,
        reason=reason,
        detail=f"entries: {len(entries)}, leader epochs in the log: {len(expected.entries)}",
        consequence=why,
    )


def _where(start_offset: int | None) -> str:
    return "is not in it" if start_offset is None else f"begins at {start_offset}"


def _fits(entry: EpochEntry, known: tuple[EpochEntry, ...]) -> bool:
    """Whether an epoch without batches lies between those that have some."""
    before = [other for other in known if other.epoch < entry.epoch]
    later = [other for other in known if other.epoch > entry.epoch]
    return (not before or before[-1].start_offset < entry.start_offset) and (
        not later or entry.start_offset <= later[0].start_offset
    )
