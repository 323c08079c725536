"""A backend: the engine that does the work of an operation, and the catalog that the operation reads and writes."""

from __future__ import annotations

from collections.abc import Mapping
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
