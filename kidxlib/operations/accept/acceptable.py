"""What there is to accept: the damage that the catalog knows of, as options select it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from kidxlib.catalog.conditions import Among
from kidxlib.catalog.findings import FINDINGS
from kidxlib.catalog.segments import SEGMENTS, LogVersion
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.operations.accept.acceptances import Selects, is_selected
from kidxlib.operations.accept.damage import ACCEPTABLE, VERSION_NAMES, Damage, version_now
from kidxlib.operations.damage.damaged_segments import DAMAGED
from kidxlib.operations.damage.last_findings import last_findings
from kidxlib.tables.protocol import Tables
from kidxlib.terminal.console import warn

#: What a segment's columns are called of a damaged file.
_OF_SEGMENTS: Final = {
    "reason": "reason",
    "reason_position": "position",
    "status": "found",
    "reason_detail": "detail",
    "log_path": "path",
    **dict(zip(LogVersion.names(), VERSION_NAMES, strict=True)),
}
_OF_FINDINGS: Final = FINDINGS.schema(Damage.__dataclass_fields__.keys()).names


def damage_now(tables: Tables, sources: Collection[str], selects: Selects) -> list[Damage]:
    """What the catalog knows to be damaged: segments, and files that the last audit of their partition found so."""
    damaged = tables.read(SEGMENTS, [*SEGMENTS.key, *_OF_SEGMENTS], [Among("source", tuple(sources)), DAMAGED])
    of_segments = [_of_segment(row) for row in damaged.to_pylist() if is_selected(row, selects)]
    known = {damage.key: damage for damage in of_segments}
    for row in last_findings(tables, sources, ACCEPTABLE, [*_OF_FINDINGS, "verdict"]).to_pylist():
        if not is_selected(row, selects):
            continue
        damage = Damage(**{name: row[name] for name in _OF_FINDINGS}, found=row["verdict"])
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


def _of_segment(row: Mapping[str, Any]) -> Damage:
    values = {other: row[name] for name, other in _OF_SEGMENTS.items()}
    return Damage(**{name: row[name] for name in SEGMENTS.key}, file=LOG_SUFFIX, consequence=None, **values)
