"""Which leader epoch an offset has, and where an epoch ends: what Kafka's `LeaderEpochFileCache` answers.

A `leader-epoch-checkpoint` holds the entries (`kidxlib.format.checkpoint_files`); here they are asked. Where Kafka
answers with −1 or an empty `Optional`, the answer is None.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import attrgetter

from kidxlib.errors import UsageError
from kidxlib.format.checkpoint_files import EpochEntry, LeaderEpochs

_EPOCH = attrgetter("epoch")
_START_OFFSET = attrgetter("start_offset")


@dataclass(frozen=True, slots=True)
class EpochEndOffset:
    """Where a leader epoch ends (`OffsetsForLeaderEpoch`).

    Attributes:
        epoch: the one that was asked for, or the last one before it that the log knows.
        end_offset: the offset after its last record.
    """

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class LeaderEpochCache:
    """The leader epochs of a partition, each with the offset at which it begins. It never changes.

    Entries are taken in their order, as Kafka assigns those of a checkpoint (`assign`): an entry replaces all before it
    that have its epoch or a later one, or begin at its offset or after it. So epochs and offsets both increase.

    Attributes:
        entries: what is left of those that were given.

    Raises:
        UsageError: an epoch or an offset is below 0.
    """

    entries: tuple[EpochEntry, ...] = ()

    def __post_init__(self) -> None:
        for entry in self.entries:
            if entry.epoch < 0 or entry.start_offset < 0:
                raise UsageError(f"{entry}: expected an epoch and an offset of 0 or more")
        object.__setattr__(self, "entries", LeaderEpochs(self.entries).entries)

    @property
    def earliest_entry(self) -> EpochEntry | None:
        """The first entry (`earliestEntry`); None where there is none."""
        return self.entries[0] if self.entries else None

    @property
    def latest_entry(self) -> EpochEntry | None:
        """The last entry (`latestEntry`); None where there is none."""
        return self.entries[-1] if self.entries else None

    @property
    def latest_epoch(self) -> int | None:
        """The epoch of the last entry (`latestEpoch`); None where there is none."""
        return _epoch_of(self.latest_entry)

    def epoch_entry(self, epoch: int) -> EpochEntry | None:
        """The entry of this very epoch (`epochEntry`); None where there is none."""
        at = bisect_left(self.entries, epoch, key=_EPOCH)
        return self.entries[at] if at < len(self.entries) and self.entries[at].epoch == epoch else None

    def previous_entry(self, epoch: int) -> EpochEntry | None:
        """The last entry whose epoch is below this one, which need not be known (`previousEntry`)."""
        at = bisect_left(self.entries, epoch, key=_EPOCH)
        return self.entries[at - 1] if at else None

    def previous_epoch(self, epoch: int | None = None) -> int | None:
        """The epoch of `previous_entry` (`previousEpoch`).

        Args:
            epoch: None for the latest.
        """
        wanted = self.latest_epoch if epoch is None else epoch
        return None if wanted is None else _epoch_of(self.previous_entry(wanted))

    def next_epoch(self, epoch: int) -> int | None:
        """The first known epoch above this one, which need not be known (`nextEpoch`)."""
        at = bisect_right(self.entries, epoch, key=_EPOCH)
        return self.entries[at].epoch if at < len(self.entries) else None

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch of an offset (`epochForOffset`), whether or not it has a record: the latest for all past
        the end of the log. None for those before the first entry.
        """
        at = bisect_right(self.entries, offset, key=_START_OFFSET)
        return self.entries[at - 1].epoch if at else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset | None:
        """Where an epoch ends (`endOffsetFor`).

        The latest epoch ends with the log. Another one ends where the next known epoch begins, and the answer names
        the last known epoch up to it. An epoch before all known ones is answered with itself and the first start.

        Returns:
            None for an epoch above all known ones, and for −1, which is no epoch.
        """
        if epoch == self.latest_epoch:
            return EpochEndOffset(epoch, log_end_offset)
        at = bisect_right(self.entries, epoch, key=_EPOCH)
        if epoch == -1 or at == len(self.entries):
            return None
        return EpochEndOffset(self.entries[at - 1].epoch if at else epoch, self.entries[at].start_offset)

    def entries_in_range(self, start_offset: int, end_offset: int) -> tuple[EpochEntry, ...]:
        """The epochs of the offsets from one to below another (`epochEntriesInRange`): the first of them begins at
        `start_offset`, though its own entry may lie before it.

        Args:
            start_offset, end_offset: below 0 for no limit.
        """
        entries = self.entries
        begun = bisect_right(entries, start_offset, key=_START_OFFSET)
        if start_offset >= 0 and begun:
            entries = (EpochEntry(entries[begun - 1].epoch, start_offset), *entries[begun:])
        return entries if end_offset < 0 else entries[: bisect_left(entries, end_offset, key=_START_OFFSET)]


def _epoch_of(entry: EpochEntry | None) -> int | None:
    return None if entry is None else entry.epoch
