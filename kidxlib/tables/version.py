"""The version of a catalog's tables: each carries it as a property, whichever engine made it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kidxlib.catalog.tables import CATALOG_VERSION
from kidxlib.errors import CatalogError

VERSION_PROPERTY: Final = "kidx.catalogVersion"


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

    Raises:
        CatalogError: it is not one of this project's, or a newer version wrote it.
    """
    found = properties.get(VERSION_PROPERTY)
    if found is None:
        raise CatalogError(f"{place}: a Delta table, but not one of this project's; give --catalog another directory")
    if int(found) > CATALOG_VERSION:
        raise CatalogError(
            f"{place}: written with catalog version {found}, this code has {CATALOG_VERSION}; use a newer release"
        )
    return int(found)
