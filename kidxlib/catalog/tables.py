"""The tables of a catalog, and the version of their columns."""

from __future__ import annotations

from typing import Final

from kidxlib.catalog.builds import BUILDS
from kidxlib.catalog.findings import ACCEPTED, FINDINGS
from kidxlib.catalog.partitions import PARTITION_STATES, PARTITIONS
from kidxlib.catalog.remote_segments import REMOTE_SEGMENTS
from kidxlib.catalog.retention_plans import RETENTION_PLANS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.transactions import ABORTED_TRANSACTIONS, PRODUCER_EVENTS

#: Raised by one with every column that a release adds, and where tables are laid out in another way; they carry it as a
#: property.
CATALOG_VERSION: Final = 9
#: Since this version tables have the layout that they have now: whoever writes them brings a catalog of it up to date,
#: and reads null in columns that came later. Those of an earlier one Spark alone writes.
LAYOUT_VERSION: Final = 7
#: The last one that added columns which a scan fills: segments of rows of an earlier one are read again.
FACTS_VERSION: Final = 2

TABLES: Final = (
    *(SEGMENTS, PARTITIONS, PRODUCER_EVENTS, ABORTED_TRANSACTIONS, PARTITION_STATES),
    *(BUILDS, RETENTION_PLANS, FINDINGS, ACCEPTED, REMOTE_SEGMENTS),
)

#: The order in which tables are brought to a new version. Older releases ask the first one alone for it, so they refuse
#: a catalog from then on. Every catalog has the last one too, so where both have a version all tables have it.
UPGRADE_ORDER: Final = (SEGMENTS, *(table for table in TABLES if table not in (SEGMENTS, BUILDS)), BUILDS)
