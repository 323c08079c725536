"""A Delta table's directory, as delta-rs reaches it: on a disk, or in an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from kidxlib.storage.store.s3 import endpoint, is_object, region

if TYPE_CHECKING:  # delta-rs is slow to import
    from deltalake import DeltaTable
    from pyarrow.fs import FileSystem


def storage_options(path: str) -> dict[str, str]:
    """The options of delta-rs for a catalog, in a directory or at `s3://<bucket>/<prefix>`. delta-rs finds credentials
    and the region as AWS' tools do, and as kidx does for sources. It does not find the endpoint of another store.
    """
    if not is_object(path) or (store := endpoint()) is None:
        return {}
    options = {"AWS_ENDPOINT_URL": store}
    if urlsplit(store).scheme == "http":  # delta-rs expects TLS otherwise
        options["AWS_ALLOW_HTTP"] = "true"
    if (name := region()) is not None:
        options["AWS_REGION"] = name
    return options


def file_system_of(delta: DeltaTable) -> FileSystem:
    """The table's directory. Not delta-rs' own on a disk: on a full disk it would print the state of its threads before
    the error.
    """
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import LocalFileSystem, PyFileSystem, SubTreeFileSystem

    if is_object(delta.table_uri):
        return PyFileSystem(DeltaStorageHandler(delta.table_uri, storage_options(delta.table_uri)))
    return SubTreeFileSystem(unquote(urlsplit(delta.table_uri).path), LocalFileSystem())
