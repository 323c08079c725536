"""One file that is not as recovery writes it, of the partition that all of these are made from.

That is the sample's `txn-mixed-0`, whose segments begin at 0, 84, 5797 and 5891 (the active one); 84 has 214 entries in
its offset index, 67 in its time index and 22 aborted transactions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from kidxlib.format import checkpoint_files, segment_files

FIRST, LARGE, SMALL, ACTIVE = 0, 84, 5797, 5891
END: Final = 10333

INDEX, TIMES, ABORTED, SNAPSHOT = segment_files.AUXILIARY_SUFFIXES
EPOCHS: Final = checkpoint_files.LEADER_EPOCH_CHECKPOINT

#: Entries of an index, with the fields of `formats`, changed in place or replaced.
Entries = np.ndarray[Any, np.dtype[np.void]]


@dataclass(frozen=True, slots=True)
class Damage:
    """One file that is not as recovery writes it.

    Attributes:
        name: what is special about it.
        file: its name in the partition's directory.
        content: of the file now, from what it was and the partition's directory; None removes it.
        verdict, reason: what is to be said of it.
        log: verdict and reason of a log, where something is to be said of that too; of no other file anything.
    """

    name: str
    file: str
    content: Callable[[bytes, Path], bytes | None]
    verdict: str
    reason: str
    log: tuple[str, str] | None = None

    @property
    def problems(self) -> dict[str, tuple[str, str]]:
        """What is to be said, by the names of files."""
        found = {self.file: (self.verdict, self.reason)}
        if self.log is not None:
            found[file_name(int(self.file[:20]), segment_files.LOG_SUFFIX)] = self.log
        return found


def file_name(base_offset: int, suffix: str) -> str:
    return segment_files.segment_file(base_offset, suffix)


LARGE_INDEX, LARGE_TIMES, LARGE_ABORTED = (file_name(LARGE, suffix) for suffix in (INDEX, TIMES, ABORTED))
