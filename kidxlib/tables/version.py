"""The version of a catalog's tables: each carries it as a property, whichever engine made it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kidxlib.catalog.tables import CATALOG_VERSION
from kidxlib.errors import CatalogError

VERSION_PROPERTY: Final = "kidx.catalogVersion"


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
