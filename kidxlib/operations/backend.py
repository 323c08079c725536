"""What an operation works with: an engine that does its work, and the catalog that it reads and records in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from kidxlib.engine.protocol import Engine
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.tables.protocol import Maintenance, MaintenanceOf


@dataclass(frozen=True, slots=True)
class Backend:
    """Workers, and the catalog that a run shares with others.

    Attributes:
        versions: of what does the work, besides this project and Python: recorded in `builds`.
        maintenance_of: who keeps tables; None where they go with the run.
    """

    engine: Engine
    catalog: TablesCatalog
    versions: Mapping[str, str]
    maintenance_of: MaintenanceOf | None = None

    @property
    def maintenance(self) -> Maintenance:
        """The upkeep of the catalog's tables."""
        assert self.maintenance_of is not None  # who asks for it works on a catalog
        return self.maintenance_of(self.catalog.tables)


#: Opens the workers and the catalog of a run: by processes of this machine, or by Spark.
OpenBackend = Callable[[], AbstractContextManager[Backend]]
