"""The form of a damage: one file of the sample's `txn-mixed-0` that is not as recovery writes it.

The partition's segments begin at 0, 84, 5797 and 5891 (the active one); 84 has 214 entries in its offset index, 67 in
its time index and 22 aborted transactions.
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
    """One file that is not as recovery writes it. No other file, but perhaps the log, gets another verdict.

    Attributes:
        name: the damage in words.
        file: the file's name in the partition's directory.
        content: gives the damaged content from the sound one and the partition's directory; None removes the file.
        verdict, reason: an audit's, on the file.
        log: an audit's verdict and reason on the log, if that is not whole then.
    """

    name: str
    file: str
    content: Callable[[bytes, Path], bytes | None]
    verdict: str
    reason: str
    log: tuple[str, str] | None = None

    @property
    def problems(self) -> dict[str, tuple[str, str]]:
        """An audit's verdicts and reasons, by the names of files."""
        problems = {self.file: (self.verdict, self.reason)}
        if self.log is not None:
            problems[file_name(int(self.file[:20]), segment_files.LOG_SUFFIX)] = self.log
        return problems


def file_name(base_offset: int, suffix: str) -> str:
    return segment_files.segment_file(base_offset, suffix)


LARGE_INDEX, LARGE_TIMES, LARGE_ABORTED = (file_name(LARGE, suffix) for suffix in (INDEX, TIMES, ABORTED))
