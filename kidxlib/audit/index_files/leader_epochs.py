"""Checks a `leader-epoch-checkpoint`. A broker believes this file without looking at the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.format.checkpoint_files import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    EpochEntry,
    LeaderEpochs,
)
from kidxlib.format.segment_files import OFFSET_MAX
from kidxlib.storage.log_dir import IN_BUCKET_OR_LOST

#: The reason if the file begins before the first log.
FIRST_LOGS_MISSING: Final = "first-logs-missing"
#: The same, where the first logs may be in a bucket.
FIRST_LOGS_NOT_KNOWN: Final = "first-logs-not-known"

_TRUNCATES_WRONGLY: Final = "replicas that compare epochs truncate their logs at a wrong offset"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedLeaderEpochs:
    """The leader epochs that a `leader-epoch-checkpoint` should have, by the partition's logs and by its broker.

    Attributes:
        recovered: what recovery makes of the batches.
        changes: where the epoch changes from batch to batch, in the order of the log.
        all_are_known: whether the logs reach back to the start.
        log_starts: where the log may start within its logs: below, a broker has forgotten the epochs
            (`LeaderEpochFileCache.truncateFromStart`).
        log_end_offset: where the logs end: epochs that begin there are forgotten when the log is loaded
            (`truncateFromEnd`).
        remote: the epochs of remote segments.
        lost_log_starts: whether the broker stopped cleanly, and its checkpoint of log starts is missing.
        first_offset: where the logs begin; None if logs before the first one are in a bucket, or it is not known.
        may_begin_in_bucket: nothing tells whether logs before the first one are in a bucket.
    """

    recovered: LeaderEpochs
    changes: tuple[EpochEntry, ...]
    all_are_known: bool = True
    log_starts: tuple[int, ...] = ()
    log_end_offset: int = OFFSET_MAX
    remote: frozenset[int] = frozenset()
    lost_log_starts: bool = False
    first_offset: int | None = None
    may_begin_in_bucket: bool = False

    def go_back(self) -> tuple[LeaderEpochs, ...]:
        """The epochs that a broker keeps in its file if they go back in the batches, where recovery without the file
        makes others: those after appending the batches (`LeaderEpochFileCache.assign`), and those after a recovery on
        top of that.
        """
        appended, recovered = LeaderEpochs(self.changes), LeaderEpochs(self.changes)
        if appended.entries == self.recovered.entries:
            return ()
        recovered.assign_new(self.changes)
        return appended, recovered

    def from_starts(self, epochs: LeaderEpochs) -> Iterator[LeaderEpochs]:
        """The epochs as a `leader-epoch-checkpoint` may have them: all of the logs', or those from a log start on."""
        yield epochs
        for start in self.log_starts:
            if start >= self.log_end_offset:
                yield LeaderEpochs()
            yield epochs.within(start, OFFSET_MAX)


def audit_epochs(found: LeaderEpochs | None, logs: ExpectedLeaderEpochs) -> Finding:
    """The finding on a `leader-epoch-checkpoint`."""
    lost = finding_on_lost_logs(None if found is None else found.first, logs.first_offset)
    if lost is not None and not logs.may_begin_in_bucket:
        return lost
    file = LeaderEpochs() if found is None else found
    findings = [_compare_epochs(file, expected, logs) for expected in logs.from_starts(logs.recovered)]
    best = min(findings, key=lambda finding: finding.verdict.severity)
    if best.verdict is not Verdict.BROKEN:
        return best if lost is None else lost_or_in_bucket(lost)
    if (finding := _finding_on_later_start(file, logs)) is not None:
        return finding
    if are_of_broker(found, logs):
        return Finding(
            file=LEADER_EPOCH_CHECKPOINT,
            verdict=Verdict.SAFE,
            reason="epochs-go-back",
            detail=f"entries: {_epochs_in_words(file)}; recovery without the file makes "
            f"{_epochs_in_words(logs.recovered)} of the log",
            consequence="leader epochs go back in the log, and a broker that appends such batches forgets the epochs "
            "before: it left the file so, and keeps it at a clean start",
        )
    return findings[-1]  # the finding for the latest known log start


def finding_on_lost_logs(first: EpochEntry | None, first_offset: int | None) -> Finding | None:
    """The finding on a `leader-epoch-checkpoint` whose `first` entry is below the first offset of the logs. Whatever a
    broker deletes from the start, it cuts the epochs there (`UnifiedLog.maybeIncrementLogStartOffset`). As it loads a
    log it cuts them at the checkpoint of log starts alone, so the file tells of the loss until more is deleted
    (`LogLoader.load`).
    """
    if first is None or first_offset is None or first.start_offset >= first_offset:
        return None
    return Finding(
        file=LEADER_EPOCH_CHECKPOINT,
        verdict=Verdict.BROKEN,
        reason=FIRST_LOGS_MISSING,
        detail=f"it begins with epoch {first.epoch} at offset {first.start_offset}, and the logs at "
        f"{first_offset}: offsets {first.start_offset} to {first_offset - 1} are in no log",
        consequence="these logs were lost: a broker that deletes the first logs cuts this file there, and so does kidx "
        "retention. Consumers that ask for these offsets get OFFSET_OUT_OF_RANGE. Look for the logs on other replicas "
        "and copies before a broker deletes more logs here: it cuts the file then, and nothing tells any more",
    )


def lost_or_in_bucket(lost: Finding) -> Finding:
    """The finding on a `leader-epoch-checkpoint` that knows of lost logs, where these may as well be in a bucket."""
    return replace(lost, verdict=Verdict.SAFE, reason=FIRST_LOGS_NOT_KNOWN, consequence=IN_BUCKET_OR_LOST)


def are_of_broker(found: LeaderEpochs | None, logs: ExpectedLeaderEpochs) -> bool:
    """Whether epochs go back in the logs, and the `leader-epoch-checkpoint` is what the broker that appended them
    wrote.
    """
    if found is None:
        return False
    at = {entry.epoch: entry.start_offset for entry in found.entries}
    before = {after.epoch: entry.start_offset for entry, after in pairwise(logs.changes)}
    return any(
        _compare_epochs(found, expected, logs).verdict is not Verdict.BROKEN
        and all(at[entry.epoch] > before.get(entry.epoch, -1) for entry in expected.entries)
        for epochs in logs.go_back()
        for expected in logs.from_starts(epochs)
    )


def _finding_on_later_start(found: LeaderEpochs, logs: ExpectedLeaderEpochs) -> Finding | None:
    """The finding on a file that begins amid an epoch, as it does once the log start has come there. A file that begins
    with an epoch's first batch may have been lost, and begun anew by the next leader.
    """
    first = found.first
    expected = LeaderEpochs() if first is None else logs.recovered.within(first.start_offset, OFFSET_MAX)
    if first is None or expected.first != first or first in logs.recovered.entries:
        return None
    if first.start_offset > logs.log_end_offset:
        return None
    finding = _compare_epochs(found, expected, logs)
    if finding.verdict is Verdict.BROKEN:
        return None
    detail = f"it begins with epoch {first.epoch} at {first.start_offset}, amid the epoch's batches"
    why = f"the log start had come to {first.start_offset}, as by DeleteRecords, and "
    if logs.lost_log_starts:
        why += (
            f"{LOG_START_OFFSET_CHECKPOINT} is missing, though the broker stopped cleanly: a broker that starts serves "
            "the records before it again"
        )
        return replace(finding, verdict=Verdict.BROKEN, reason="log-start-lost", detail=detail, consequence=why)
    why += (
        f"all below was committed; a broker writes {LOG_START_OFFSET_CHECKPOINT} once a minute, and was killed before, "
        "at this stop or an earlier one: it serves the records before it again"
    )
    return replace(finding, verdict=Verdict.SAFE, reason="later-log-start", detail=detail, consequence=why)


def _compare_epochs(found: LeaderEpochs, expected: LeaderEpochs, logs: ExpectedLeaderEpochs) -> Finding:
    entries = found.entries
    if entries == expected.entries:
        return Finding(file=LEADER_EPOCH_CHECKPOINT, verdict=Verdict.IDENTICAL)
    at = {entry.epoch: entry.start_offset for entry in entries}
    for number, entry in enumerate(expected.entries):
        begun = at.get(entry.epoch)
        earliest = expected.entries[number - 1].start_offset + 1 if number else 0
        if begun is None or not earliest <= begun <= entry.start_offset:
            where = "is not in it" if begun is None else f"begins at {begun}"
            return Finding(
                file=LEADER_EPOCH_CHECKPOINT,
                verdict=Verdict.BROKEN,
                reason="missing-epoch" if begun is None else "wrong-start-offset",
                detail=f"epoch {entry.epoch} {where}, its first batch is at {entry.start_offset}",
                consequence=_TRUNCATES_WRONGLY,
            )
    more = [entry for entry in entries if entry.epoch not in {known.epoch for known in expected.entries}]
    after = [entry for entry in more if not _fits_between(entry, expected.entries)]
    if after and logs.all_are_known:
        return Finding(
            file=LEADER_EPOCH_CHECKPOINT,
            verdict=Verdict.BROKEN,
            reason="epoch-amid-another",
            detail=f"epoch {after[0].epoch} begins at {after[0].start_offset}, where the log has another",
            consequence=_TRUNCATES_WRONGLY,
        )
    if more:
        reason, why = "epochs-without-batches", _why_without_batches({entry.epoch for entry in more}, logs.remote)
        detail = f"entries: {len(entries)}, leader epochs in the log: {len(expected.entries)}"
    else:
        reason, why = "earlier-starts", "the batches between were compacted, or deleted"
        epoch, start = next((entry.epoch, entry.start_offset) for entry in expected.entries if entry not in entries)
        detail = f"epoch {epoch} begins at {at[epoch]} in it, and with the batch at {start} in the log"
    return Finding(file=LEADER_EPOCH_CHECKPOINT, verdict=Verdict.SAFE, reason=reason, detail=detail, consequence=why)


def _epochs_in_words(epochs: LeaderEpochs) -> str:
    return ", ".join(f"{entry.epoch} from {entry.start_offset} on" for entry in epochs.entries[:3]) or "none"


def _why_without_batches(epochs: set[int], remote: frozenset[int]) -> str:
    copied, others = epochs & remote, epochs - remote
    if not copied:
        return "their leaders wrote nothing that is left"
    in_bucket = f"batches of epoch {', '.join(map(str, sorted(copied)))} are in remote segments"
    return f"{in_bucket}; leaders of the others wrote nothing that is left" if others else in_bucket


def _fits_between(entry: EpochEntry, known: tuple[EpochEntry, ...]) -> bool:
    """Whether an epoch without batches lies between those that have some."""
    before = [other for other in known if other.epoch < entry.epoch]
    later = [other for other in known if other.epoch > entry.epoch]
    return (not before or before[-1].start_offset < entry.start_offset) and (
        not later or entry.start_offset <= later[0].start_offset
    )
