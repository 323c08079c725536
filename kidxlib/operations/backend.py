"""A backend: the engine that does the work of an operation, and the catalog that the operation reads and writes.
`local_backend` opens one with a catalog.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kidxlib.engine.protocol import Engine
from kidxlib.tables.protocol import Maintenance, MaintenanceOf

if TYPE_CHECKING:  # a worker that begins with an operation needs no catalog
    from kidxlib.operations.catalog import TablesCatalog


@dataclass(frozen=True, slots=True)
class Backend:
    """Workers, and the catalog that a run shares with others.

    Attributes:
        versions: versions of the packages that do the work, besides this project and Python; recorded in `builds`.
        maintenance_of: gives the upkeep of tables; None if no table outlasts the run.
    """

    engine: Engine
    catalog: TablesCatalog
    versions: Mapping[str, str]
    maintenance_of: MaintenanceOf | None = None

    @property
    def maintenance(self) -> Maintenance:
        """The upkeep of the catalog's tables."""
        assert self.maintenance_of is not None  # only operations on a catalog ask for it
        return self.maintenance_of(self.catalog.tables)


@contextlib.contextmanager
def open_without_catalog(processes: int | None) -> Iterator[Backend]:
    """Open a backend without a catalog: processes of this machine do the work, and the tables are in memory and end
    with the run. This needs no package of an extra.

    Args:
        processes: how many processes work at a time; None: one for each core.
    """
    from kidxlib.engine.local import LocalEngine, Workers  # here, as workers import this module and need none of these
    from kidxlib.operations.catalog import TablesCatalog
    from kidxlib.storage.scratch import scratch_directory
    from kidxlib.tables.memory_tables import MemoryTables

    with scratch_directory() as scratch, Workers(processes or os.cpu_count() or 1) as workers:
        yield Backend(LocalEngine(workers, scratch), TablesCatalog(MemoryTables("no catalog", scratch)), {})
