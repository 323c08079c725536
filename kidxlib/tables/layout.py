"""The properties of the catalog's tables, the same by Spark and by delta-rs, so that each can write the other's tables;
and the version of the columns, which is one of the properties.

delta-rs writes tables up to writer version 2, and none with liquid clustering, so the tables have neither clustering
nor deletion vectors nor column mapping. Rows are written in order, so that queries skip files by their statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from kidxlib.catalog.rows import Table
from kidxlib.catalog.tables import CATALOG_VERSION
from kidxlib.errors import CatalogError

#: The protocol of each table, which every Delta reader and writer supports.
READER_VERSION: Final = 1
WRITER_VERSION: Final = 2

#: Files of this size hold some 100,000 segments. An update rewrites whole files, and a query reads them.
FILE_BYTES: Final = 16 * 1024 * 1024
#: The least number of bytes that a row counts for. Similar rows take ten bytes each: a million of them would fit into
#: 16 MiB, and rewriting them takes seconds and a gigabyte of memory.
ROW_BYTES: Final = 128
#: Smaller files are joined with others. Rows that are written in order fill at least half a file.
SMALL_FILE_BYTES: Final = FILE_BYTES // 2

VERSION_PROPERTY: Final = "kidx.catalogVersion"


def counted_bytes(size_bytes: int, rows: int | None) -> int:
    """The size that files count for when files are cut, held or joined. `rows` is None if the table's log does not have
    it.
    """
    return max(size_bytes, ROW_BYTES * (rows or 0))


def properties_of(table: Table) -> dict[str, str]:
    return {
        VERSION_PROPERTY: str(CATALOG_VERSION),
        # Every Delta reader can open a table without deletion vectors.
        "delta.enableDeletionVectors": "false",
        # A commit fails if rows were added since the version that it was computed from. With Delta's default, a MERGE
        # that has not seen rows appended meanwhile succeeds: their keys would occur twice.
        "delta.isolationLevel": "Serializable",
        # By default the first 32 columns have statistics, which take 2 kB of the log for each file.
        "delta.dataSkippingStatsColumns": ",".join(table.statistics),
    }


def commented_schema(table: Table) -> pa.Schema:
    """The table's schema with the comments of its columns, in Delta's form."""
    return pa.schema([column.field.with_metadata({"comment": column.comment}) for column in table.columns])


def made_by_an_older_release(place: str, version: int) -> CatalogError:
    return CatalogError(
        f"{place}: made by an older release, with catalog version {version}; this one has {CATALOG_VERSION}: "
        "run ./spark-submit.sh build_index once, which brings the catalog up to date"
    )


def version_of(place: str, properties: Mapping[str, str]) -> int:
    version = properties.get(VERSION_PROPERTY)
    if version is None:
        raise CatalogError(f"{place}: a Delta table, but not one of this project's; give --catalog another directory")
    if int(version) > CATALOG_VERSION:
        raise CatalogError(
            f"{place}: written with catalog version {version}, this code has {CATALOG_VERSION}; use a newer release"
        )
    return int(version)
