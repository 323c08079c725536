"""The backend on one machine without a catalog: processes do the work, and tables in memory end with the run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from kidxlib.engine.local import LocalEngine, Workers
from kidxlib.operations.backend import Backend
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.storage.scratch import scratch_directory
from kidxlib.tables.memory_tables import MemoryTables


@contextlib.contextmanager
def open_local_once(processes: int | None) -> Iterator[Backend]:
    """Open processes that do the work, and an empty catalog in memory. This needs no package of an extra.

    Args:
        processes: how many processes work at a time; None: one for each core.
    """
    with scratch_directory() as scratch, Workers(processes or os.cpu_count() or 1) as workers:
        catalog = TablesCatalog(MemoryTables("no catalog", scratch))
        yield Backend(LocalEngine(workers, scratch), catalog, {})
