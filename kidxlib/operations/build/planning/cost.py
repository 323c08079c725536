"""What a build would ask of object stores, from what it would do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from rich.filesize import decimal

from kidxlib.build.changes import Changes
from kidxlib.build.listed import numbers_in, partitions_of
from kidxlib.build.plan import Plan
from kidxlib.storage.ranged_log import RANGE_BYTES
from kidxlib.storage.store.requests import Requests
from kidxlib.storage.store.s3 import ObjectPath, is_object

#: Of each segment that is read.
_INDEX_FILES: Final = 2


@dataclass(frozen=True, slots=True)
class Cost:
    """What is asked of object stores.

    Attributes:
        reading: requests of listing, comparing and reading: a build makes no fewer.
        writing: of index files, if each differs from what is there.
        read_bytes: of logs.
    """

    reading: Requests
    writing: Requests
    read_bytes: int

    def __bool__(self) -> bool:
        return bool(self.reading or self.writing)

    def __str__(self) -> str:
        written = f"; {self.writing} for index files, if all differ" if self.writing else ""
        return f"at least {self.reading}; {decimal(self.read_bytes)} to read{written}"

    def as_json(self) -> dict[str, Any]:
        return {"requests": (self.reading + self.writing).as_json(), "read_bytes": self.read_bytes}


def cost_of(plan: Plan, changes: Changes, asked: Requests) -> Cost:
    """What a build costs that does what a dry run has found.

    Args:
        asked: what the dry run itself has asked: a build lists and compares as it did.
    """
    is_in_store = np.array([isinstance(each.directory.path, ObjectPath) for each in plan.partitions], np.bool_)
    sizes = numbers_in(changes.to_read["log_bytes"])[0][is_in_store[partitions_of(changes.to_read)]]
    ranges = int((-(-sizes // RANGE_BYTES)).sum())
    reading = replace(asked, tried_again=0) + Requests(head=2 * len(sizes), get=ranges)
    writing = Requests()
    if any(is_object(each.index_directory.root) for each in plan.partitions):
        files = _INDEX_FILES * changes.to_read.num_rows
        reading += Requests(list=len(changes.to_finish), head=files)
        writing = Requests(put=files)
    return Cost(reading, writing, int(sizes.sum()))
