"""What a table is made with, by Spark and by delta-rs alike, so that either can write what the other has made; and the
version of its columns, which it carries as a property.

delta-rs writes tables up to writer version 2, and none with liquid clustering, so the tables have neither clustering
nor deletion vectors nor column mapping. Files leave out queries by their statistics, as rows are written in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from kidxlib.catalog.rows import Table
from kidxlib.catalog.tables import CATALOG_VERSION
from kidxlib.errors import CatalogError

#: Of each table; every Delta reader and writer can open one of these.
READER_VERSION: Final = 1
WRITER_VERSION: Final = 2

#: Files of this size hold some 100,000 segments. An update rewrites whole files, and a query reads them.
FILE_BYTES: Final = 16 * 1024 * 1024
#: A row counts for so many bytes at least. Rows that are much alike take ten bytes each: 16 MiB would have more of them
#: than a million, which take seconds to be written anew, and a gigabyte of memory.
ROW_BYTES: Final = 128
#: A smaller file is worth to be put together with others: what is written in order fills half a file at least.
SMALL_FILE_BYTES: Final = FILE_BYTES // 2

VERSION_PROPERTY: Final = "kidx.catalogVersion"


def counted_bytes(size_bytes: int, rows: int | None) -> int:
    """What a file, or some of them, count for where files are cut, held or put together.

    Args:
        rows: in them; None where the table's log does not say it.
    """
    return max(size_bytes, ROW_BYTES * (rows or 0))


def properties_of(table: Table) -> dict[str, str]:
    """The properties of a table of this version."""
    return {
        VERSION_PROPERTY: str(CATALOG_VERSION),
        # Every Delta reader can open a table without them.
        "delta.enableDeletionVectors": "false",
        # A commit fails if rows were added since the version that it was computed from. Delta's default lets a MERGE
        # pass that did not see rows that were appended meanwhile: their keys would come twice.
        "delta.isolationLevel": "Serializable",
        # By default the first 32 columns have some, which is 2 kB of the log for each file.
        "delta.dataSkippingStatsColumns": ",".join(table.statistics),
    }


def commented_schema(table: Table) -> pa.Schema:
    """The table's schema with what its columns mean, where Delta looks for that."""
    return pa.schema([column.field.with_metadata({"comment": column.comment}) for column in table.columns])


def made_by_an_older_release(place: str, found: int) -> CatalogError:
    """What is said of a catalog, or of a table of one, that has an earlier version than this code.

    Args:
        place: its path or URL.
        found: its version.
    """
    return CatalogError(
        f"{place}: made by an older release, with catalog version {found}; this one has {CATALOG_VERSION}: "
        "run ./spark-submit.sh build_index once, which brings the catalog up to date"
    )


def version_of(place: str, properties: Mapping[str, str]) -> int:
    """The catalog version of a table, by its properties.

    Args:
        place: the table's path or URL, for errors.
    """
    found = properties.get(VERSION_PROPERTY)
    if found is None:
        raise CatalogError(f"{place}: a Delta table, but not one of this project's; give --catalog another directory")
    if int(found) > CATALOG_VERSION:
        raise CatalogError(
            f"{place}: written with catalog version {found}, this code has {CATALOG_VERSION}; use a newer release"
        )
    return int(found)
