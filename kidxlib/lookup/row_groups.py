"""Groups the rows of many questions that are answered together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Longs: TypeAlias = NDArray[np.int64]


def groups(keys: NDArray[Any], rows: Longs) -> Iterator[tuple[int, Longs]]:
    """Group rows by key, both of shape (n,). Keys come in order; rows of one key keep their order."""
    order = np.argsort(keys, kind="stable")
    found, starts = np.unique(keys[order], return_index=True)
    yield from zip(found.tolist(), np.split(rows[order], starts[1:]), strict=True) if len(found) else ()
