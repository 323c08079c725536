"""What an operation works with: an engine that does its work, and the catalog that it reads and records in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from kidxlib.engine.protocol import Engine
from kidxlib.operations.catalog import TablesCatalog


@dataclass(frozen=True, slots=True)
class Backend:
    """Workers, and the catalog that a run shares with others.

    Attributes:
        versions: of what does the work, besides this project and Python: recorded in `builds`.
    """

    engine: Engine
    catalog: TablesCatalog
    versions: Mapping[str, str]


#: Opens the workers and the catalog of a run: by processes of this machine, or by Spark.
OpenBackend = Callable[[], AbstractContextManager[Backend]]
