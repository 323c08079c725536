"""Where an audit's rows are kept, so that they are computed once."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import TypeAlias

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from jobs.common.catalog.catalog import Catalog

#: Computes a DataFrame once, under a name of its own.
Materialise: TypeAlias = Callable[[DataFrame, str], DataFrame]


@contextlib.contextmanager
def materialising(catalog: Catalog | None, audit_id: str) -> Iterator[Materialise]:
    """What computes DataFrames once: on the executors' disks, or where the catalog stages results, so that a commit
    which is tried again reads no log again.
    """
    with contextlib.ExitStack() as stack:

        def materialise(rows: DataFrame, name: str) -> DataFrame:
            if catalog is not None:
                # A killed run may have left a directory that its audit's id and this name call for.
                attempt = uuid.uuid4().hex[:8]
                return stack.enter_context(catalog.staging(f"{audit_id}-{name}-{attempt}"))(rows)
            kept = rows.persist(StorageLevel.DISK_ONLY)
            kept.count()
            return kept

        yield materialise
