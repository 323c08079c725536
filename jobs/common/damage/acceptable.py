"""What there is to accept: the damage that the catalog knows of, as options select it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Any

from pyspark.sql import functions as F

from jobs.common.catalog.catalog import Catalog
from jobs.common.catalog.status import is_damaged
from jobs.common.damage.finding import ACCEPTABLE, VERSION_NAMES, Damage, version_now
from kidxlib.catalog.segments import SEGMENTS, LogVersion
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.terminal.console import warn

#: Says of a source, topic, partition and base offset whether it was asked for.
Selects = Callable[[str, str, int, int], bool]


def damage_now(catalog: Catalog, sources: Collection[str], selects: Selects) -> list[Damage]:
    """What the catalog knows to be damaged: segments, and files that the last audit of their partition found so."""
    segments = catalog.read(SEGMENTS).where(F.col("source").isin(*sources))
    damaged = segments.where(is_damaged()).select(
        *SEGMENTS.key,
        F.lit(LOG_SUFFIX).alias("file"),
        "reason",
        F.col("reason_position").alias("position"),
        F.col("status").alias("found"),
        F.col("reason_detail").alias("detail"),
        F.lit(None).cast("string").alias("consequence"),
        *(F.col(name).alias(other) for name, other in zip(LogVersion.names(), VERSION_NAMES, strict=True)),
        F.col("log_path").alias("path"),
    )
    of_segments = [Damage(**row.asDict()) for row in damaged.collect() if is_selected(row, selects)]
    known = {damage.key: damage for damage in of_segments}
    for row in catalog.last_findings(sources, ACCEPTABLE).collect():
        damage = _found(row.asDict())
        if not is_selected(row, selects):
            continue
        if version_now(damage.path) != damage.version:
            warn(f"{damage.path}: it has changed since it was audited: run verify_index again to accept what it is now")
            continue
        # What an audit says of a log that the catalog says too is one finding; the audit's word has more.
        of_build = known.get(damage.key, damage)
        if (of_build.position, of_build.version) == (damage.position, damage.version):
            known[damage.key] = damage
    return sorted(known.values(), key=lambda damage: damage.key)


def selected_segments(names: Collection[str], topics: re.Pattern[str]) -> Selects:
    """What `--segment` and `--topics` select.

    Args:
        names: `TOPIC-PARTITION/BASE_OFFSET` each; all segments where there is none.
    """

    def selects(source: str, topic: str, partition: int, base_offset: int) -> bool:
        named = not names or f"{topic}-{partition}/{base_offset}" in names
        return named and topics.fullmatch(topic) is not None

    return selects


def is_selected(row: Any, selects: Selects) -> bool:
    return selects(*(row[name] for name in SEGMENTS.key))


def _found(finding: Mapping[str, Any]) -> Damage:
    """A row of `findings`."""
    names = [field.name for field in fields(Damage) if field.name != "found"]
    return Damage(**{name: finding[name] for name in names}, found=finding["verdict"])
