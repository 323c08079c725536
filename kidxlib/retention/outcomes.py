"""What became of the segments that a retention plan names."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class DeletionOutcome(enum.StrEnum):
    """What became of a segment that a plan names."""

    DELETED = "deleted"
    LAST = "last"  # of its partition: a broker would roll first, here it stays
    CHANGED = "changed"  # not as it was planned: it stays, and all after it
    LEFT = "left"  # another of its partition is not as it was planned: the partition stays
    NOT_DUE = "not-due"  # by what is known now it would not be deleted: it stays, and all after it
    NOT_RENAMED = "not-renamed"  # a file cannot be renamed, or its new name is taken: it stays, and all after it
    EPOCHS_NOT_CUT = "epochs-not-cut"  # renamed, and not removed: leader epochs before the log cannot be cut
    AFTER_KEPT = "behind"  # it is after one that stays
    GONE = "gone"  # it was not there any more, nor anything of it under the name of a deleted file


#: All after such a segment stays.
STOPPING: Final = (
    DeletionOutcome.LAST,
    DeletionOutcome.CHANGED,
    DeletionOutcome.LEFT,
    DeletionOutcome.NOT_DUE,
    DeletionOutcome.NOT_RENAMED,
)
#: What a person should look into.
PROBLEMS: Final = (
    DeletionOutcome.CHANGED,
    DeletionOutcome.LEFT,
    DeletionOutcome.NOT_DUE,
    DeletionOutcome.NOT_RENAMED,
    DeletionOutcome.EPOCHS_NOT_CUT,
    DeletionOutcome.AFTER_KEPT,
)


@dataclass(frozen=True, slots=True)
class Kept:
    """Why a segment stays; None if another segment's detail says so."""

    outcome: DeletionOutcome
    detail: str | None
