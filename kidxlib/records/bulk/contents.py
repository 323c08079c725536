"""What the records of each batch say, all together, beside what its header says of them."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import MalformedRecordsError
from kidxlib.records.bulk.batch_table import BatchTable
from kidxlib.records.bulk.contents_kernel import CONTENTS, fold_contents
from kidxlib.records.bulk.decode import RecordPlacer
from kidxlib.records.bulk.wanted import Wanted

_ALL: Final = Wanted()


def contents_of(placer: RecordPlacer, table: BatchTable) -> NDArray[np.void]:
    """What the records of some batches say: of dtype `CONTENTS`, a row a batch."""
    contents = np.zeros(len(table.rows), CONTENTS)
    contents["is_well_formed"] = 1
    positions = table.rows["position"]
    left = table
    while len(left.rows):
        try:
            for placed in placer.placed(left, _ALL):
                first = int(np.searchsorted(positions, placed.batches["position"][0]))
                fold_contents(placed.places, first, contents)
            break
        except MalformedRecordsError as error:
            number = int(np.searchsorted(positions, error.position))
            contents[number]["is_well_formed"] = 0
            left = table.after(number)
    return contents
