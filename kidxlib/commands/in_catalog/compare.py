"""`kidx compare --catalog`: A is a source of the catalog, and B another one, or its copy in an object store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from kidxlib.errors import UsageError
from kidxlib.operations.audit.copies.compare_copy import run_copies
from kidxlib.operations.audit.copies.copy_request import CopyOptions, copy_request
from kidxlib.operations.compare.compare_places import run_sources
from kidxlib.operations.compare.compare_request import As, CompareRequest
from kidxlib.operations.local import open_local
from kidxlib.run.catalog_place import existing_tables
from kidxlib.run.options import SETTINGS_FILE
from kidxlib.run.recorded_sources import source_paths
from kidxlib.run.result import RunResult
from kidxlib.storage.store.s3 import is_object


def compare_with_catalog(request: CompareRequest, processes: int | None, *, as_json: bool) -> RunResult:
    """Compare B with what the catalog says of A.

    Args:
        processes: how many ask an object store; None for one a core.
    """
    assert request.catalog is not None
    if request.logs_only:
        raise UsageError(
            "--logs-only: not with --catalog, which compares nothing beside the logs; leave the option out"
        )
    tables = existing_tables("--catalog", request.catalog)
    names = {path: name for name, path in source_paths(tables).items()}
    request = replace(request, a=_source(request.a, names), b=_source(request.b, names))
    if not is_object(request.b):
        if request.how is not As.REPLICA:
            raise UsageError(
                "--catalog and two sources: it compares their batches; add --as replica, or name two places without "
                "--catalog"
            )
        if request.inactive_only:
            raise UsageError(
                "--inactive-only: only with a copy in an object store; two sources are compared by offset, and "
                "--allow-behind lets B end earlier"
            )
        return run_sources(request, tables, as_json=as_json)
    if request.how is As.REPLICA:
        raise UsageError(f"--as replica and --catalog: {request.b} is compared as a copy; leave out --as replica")
    if request.allow_behind:
        raise UsageError(
            f"--allow-behind: not with --catalog and {request.b}, of which each segment is compared as a whole; "
            "give --inactive-only to leave out the last one of each partition"
        )
    options = CopyOptions(
        copy=request.b,
        inactive_only=request.inactive_only,
        require_checksums=True,
        sources=(request.a,),
        catalog=request.catalog,
        database=None,
        topics=request.topics.pattern,
        settings_file=SETTINGS_FILE,
    )
    copies = copy_request(options)
    return run_copies(copies, partial(open_local, copies.context, processes, must_exist=True), as_json=as_json)


def _source(text: str, names: Mapping[str, str]) -> str:
    """The name of a source that is meant by its name, or by its directory.

    Args:
        names: of sources, by the paths that builds were given.
    """
    return text if text in names.values() else names.get(text) or names.get(os.path.realpath(text), text)
