"""The wanted records: ranges of offsets and of timestamps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1


@dataclass(frozen=True)
class WantedRecords:
    """Records with these offsets and these timestamps; by default all.

    Attributes:
        first_offset, last_offset: both inclusive.
        first_ms, last_ms: ms since the epoch; both inclusive.
    """

    first_offset: int = _LEAST
    last_offset: int = _MOST
    first_ms: int = _LEAST
    last_ms: int = _MOST

    @classmethod
    def between(
        cls,
        start_offset: int | None = None,
        end_offset: int | None = None,
        start_ms: int | None = None,
        end_ms: int | None = None,
    ) -> WantedRecords:
        """Records from the starts to before the ends; None for no limit."""
        return cls(
            _LEAST if start_offset is None else start_offset,
            _MOST if end_offset is None else end_offset - 1,
            _LEAST if start_ms is None else start_ms,
            _MOST if end_ms is None else end_ms - 1,
        )

    @cached_property
    def limits(self) -> NDArray[np.int64]:
        """The four limits as an array for compiled loops."""
        return np.array([self.first_offset, self.last_offset, self.first_ms, self.last_ms], np.int64)

    def holds(self, offset: int, timestamp: int) -> bool:
        return self.first_offset <= offset <= self.last_offset and self.first_ms <= timestamp <= self.last_ms

    @property
    def has_times(self) -> bool:
        """Whether not all times are wanted."""
        return (self.first_ms, self.last_ms) != (_LEAST, _MOST)

    @property
    def is_empty(self) -> bool:
        """Whether no record can be wanted."""
        return self.first_offset > self.last_offset or self.first_ms > self.last_ms
