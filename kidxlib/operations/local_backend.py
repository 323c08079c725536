"""The backend on one machine with a catalog: processes do the work, and delta-rs keeps the catalog."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from importlib import metadata

from kidxlib.engine.local import LocalEngine, Workers
from kidxlib.operations.backend import Backend
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.run.context import RunContext, catalog_tables_at, existing_catalog_tables
from kidxlib.storage.scratch import scratch_directory
from kidxlib.tables.delta_maintenance import DeltaMaintenance
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.tables.protocol import Maintenance, Tables


@contextlib.contextmanager
def open_local(context: RunContext, processes: int | None, *, must_exist: bool) -> Iterator[Backend]:
    """Open the backend of one machine: processes do the work, and the catalog is on a local disk or in an S3 store.

    Args:
        context: the run's; it names the catalog by its directory or URL.
        processes: how many processes work at a time; None: one for each core.
        must_exist: whether a missing catalog is an error; only a build makes one.
    """
    path = context.catalog
    assert path is not None  # only Spark's metastore has databases
    tables = existing_catalog_tables("--catalog", path) if must_exist else catalog_tables_at("--catalog", path)
    catalog = TablesCatalog(tables)
    with scratch_directory() as scratch, Workers(processes or os.cpu_count() or 1) as workers:
        versions = {"deltalake": metadata.version("deltalake")}
        yield Backend(LocalEngine(workers, scratch), catalog, versions, local_maintenance)


def local_maintenance(tables: Tables) -> Maintenance:
    """The maintenance of tables for the backend of one machine, by delta-rs."""
    assert isinstance(tables, DeltaTables)
    return DeltaMaintenance(tables)
