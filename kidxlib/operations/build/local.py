"""What does a build on one machine: its processes, and delta-rs for the catalog."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from importlib import metadata

from kidxlib.engine.local import LocalEngine
from kidxlib.engine.processes import Workers
from kidxlib.engine.scratch import scratch_directory
from kidxlib.errors import UsageError
from kidxlib.operations.build.backend import EngineBackend
from kidxlib.operations.build.request import BuildRequest
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.run.catalog_place import no_catalog
from kidxlib.tables.delta_tables import DeltaTables


@contextlib.contextmanager
def open_local(request: BuildRequest, processes: int | None) -> Iterator[EngineBackend]:
    """Processes that read, and the catalog on a local disk.

    Raises:
        UsageError: the catalog is in an object store; or there is none, and a repair goes by its last audit.
    """
    path = request.context.catalog
    assert path is not None  # only Spark's metastore has databases
    if "://" in path:
        raise UsageError(
            f"--catalog {path}: kidx keeps catalogs on local disks; ./spark-submit.sh build_index keeps one in a store"
        )
    catalog = TablesCatalog(DeltaTables(path))
    if request.repair and not catalog.has_segments():
        raise no_catalog(f"--catalog {path}")
    with scratch_directory() as scratch, Workers(processes or os.cpu_count() or 1) as workers:
        versions = {"deltalake": metadata.version("deltalake")}
        yield EngineBackend(LocalEngine(workers, scratch), catalog, versions, scratch)
