"""Records by where their parts lie in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class PlacedRecords:
    """Some records; valid until the next ones are asked for.

    Attributes:
        batches: rows of dtype `BATCH`.
        places: of dtype `PLACE`, in the order of the log; each names the row of its batch.
    """

    batches: NDArray[np.void]
    places: NDArray[np.void]

    def of_batches(self, field: str) -> NDArray[Any]:
        """A field of each record's batch."""
        of_records: NDArray[Any] = self.batches[field][self.places["batch"]]
        return of_records
