"""The tables of a catalog that a user names, on a local disk or in an S3 store, through delta-rs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import LAYOUT_VERSION
from kidxlib.errors import UsageError
from kidxlib.run.catalog_place import absolute, no_catalog
from kidxlib.storage.location import ensure_text
from kidxlib.storage.store.s3 import SCHEME, is_object
from kidxlib.tables.version import made_by_an_older_release
from kidxlib.terminal.extras import needing_packages

if TYPE_CHECKING:  # who names no catalog may not have delta-rs, and does not wait for it
    from kidxlib.tables.delta_tables import DeltaTables


def tables_at(option: str, place: str) -> DeltaTables:
    """The tables of a catalog, or of one that is to be made.

    Args:
        option: that names it.

    Raises:
        UsageError: Spark alone reaches it, its name is no UTF-8, or a package of `kidx[catalog]` is missing.
    """
    path = absolute(place)
    ensure_text(f"{option} ", path)
    if "://" in path and not is_object(path):
        raise UsageError(
            f"{option} {path}: kidx keeps catalogs in directories and at {SCHEME} URLs; use the jobs of "
            "./spark-submit.sh for others"
        )
    with needing_packages(option):
        from kidxlib.tables.delta_tables import DeltaTables
    return DeltaTables(path)


def existing_tables(option: str, place: str) -> DeltaTables:
    """The tables of a catalog that is there.

    Raises:
        UsageError: as `tables_at`, or there is none.
        CatalogError: its columns are those of an older release, or it cannot be read.
    """
    tables = tables_at(option, place)
    if (found := tables.catalog_version(SEGMENTS)) is None:
        raise no_catalog(f"{option} {place}")
    if found < LAYOUT_VERSION:
        raise made_by_an_older_release(tables.place(SEGMENTS), found)
    return tables
