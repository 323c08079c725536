"""What an operation works with on one machine where it keeps no catalog: its processes, and tables that go with it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from kidxlib.engine.local import LocalEngine
from kidxlib.engine.processes import Workers
from kidxlib.operations.backend import Backend
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.run.heartbeat import scratch_directory
from kidxlib.tables.memory_tables import MemoryTables


@contextlib.contextmanager
def open_local_once(processes: int | None) -> Iterator[Backend]:
    """Processes that do the work, and a catalog without rows that nobody reads after the run. Needs no package of an
    extra.

    Args:
        processes: how many work at a time; None for one a core.
    """
    with scratch_directory() as scratch, Workers(processes or os.cpu_count() or 1) as workers:
        catalog = TablesCatalog(MemoryTables("no catalog", scratch))
        yield Backend(LocalEngine(workers, scratch), catalog, {})
