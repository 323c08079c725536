"""The catalog of a build that Spark does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from pyspark.sql import SparkSession

from jobs.common.catalog.catalog import Catalog
from jobs.common.catalog.create import catalog_version, is_there, make_tables
from jobs.common.catalog.open import catalog_to_build, existing_catalog
from jobs.common.damage.segments import known_damage
from kidxlib.audit.finding import Verdict
from kidxlib.catalog.findings import JudgedFile
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.operations.build.request import BuildRequest
from kidxlib.operations.known_damage import KnownDamage


@dataclass(frozen=True, slots=True)
class SparkCatalog(Catalog):
    """See `kidxlib.operations.build.protocol.CatalogToBuild`.

    Attributes:
        database: where its tables are registered, if anywhere.
    """

    database: str | None

    @classmethod
    def of(cls, request: BuildRequest, spark: SparkSession) -> Self:
        """The catalog that a build is to write to; a repair goes by one that is there."""
        find = existing_catalog if request.repair else catalog_to_build
        found = find(spark, request.context.catalog, request.context.database)
        return cls(spark, found.path, request.context.database)

    def version(self) -> int | None:
        """The version of its columns; None where not all of its tables are there."""
        return catalog_version(self)

    def make_tables(self, found: int | None) -> bool:
        """Make the tables that are missing, bring the others up to date; return whether the catalog is new."""
        return make_tables(self, self.database, found)

    def has_segments(self) -> bool:
        """Whether the table `segments` is there."""
        return is_there(self, SEGMENTS)

    def broken_files(self, sources: Sequence[str]) -> list[JudgedFile]:
        """What the audits that last looked at the partitions of some sources found broken, and is not missing."""
        found = self.last_findings(sources, [Verdict.BROKEN.value])
        return JudgedFile.of_arrow(found.select(*JudgedFile.names()).toArrow())

    def damage(self, sources: Sequence[str], topics: re.Pattern[str], gone: pa.Table | None) -> KnownDamage:
        """How the segments stand."""
        return known_damage(self, sources, topics, gone)
