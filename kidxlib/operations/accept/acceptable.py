"""What there is to accept: the damage that the catalog knows of, as options select it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Final

from kidxlib.audit.gaps import GAP, Directories, Gap, finding_row
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.findings import FINDINGS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.operations.accept.acceptances import Selected
from kidxlib.operations.accept.damage import Damage, version_now
from kidxlib.operations.damage.acceptance_rule import ACCEPTABLE, SEGMENT_COLUMNS, findings_of_segments
from kidxlib.operations.damage.damaged_segments import DAMAGED
from kidxlib.operations.damage.last_findings import last_findings
from kidxlib.tables.protocol import Tables
from kidxlib.terminal.console import warn

_OF_FINDINGS: Final = FINDINGS.schema(Damage.__dataclass_fields__.keys()).names


def damage_now(
    tables: Tables, sources: Collection[str], selected: Selected, gaps: Sequence[Gap], directories: Directories
) -> list[Damage]:
    """What the catalog knows to be damaged: segments, and files that the last audit of their partition found so; and
    gaps between logs, whether an audit has seen them or not.
    """
    damaged = tables.read(SEGMENTS, SEGMENT_COLUMNS, [Among("source", tuple(sources)), DAMAGED])
    of_segments = [Damage(**row) for row in findings_of_segments(damaged).to_pylist() if selected.has(row)]
    known = {damage.key: damage for damage in of_segments}
    for row in last_findings(tables, sources, Among("verdict", ACCEPTABLE), [*_OF_FINDINGS, "verdict"]).to_pylist():
        if row["file"] == GAP or not selected.has(row):
            continue
        damage = Damage(**{name: row[name] for name in _OF_FINDINGS}, found=row["verdict"])
        if version_now(damage.path) != damage.version:
            warn(f"{damage.path}: it has changed since it was audited: run verify_index again to accept what it is now")
            continue
        # What an audit says of a log that the catalog says too is one finding; the audit's word has more.
        of_build = known.get(damage.key, damage)
        if (of_build.position, of_build.version) == (damage.position, damage.version):
            known[damage.key] = damage
    of_gaps = [_of_gap(gap, directories) for gap in gaps]
    known |= {damage.key: damage for damage in of_gaps if selected.has(asdict(damage))}
    return sorted(known.values(), key=lambda damage: damage.key)


def _of_gap(gap: Gap, directories: Directories) -> Damage:
    """A gap as a finding that may be accepted: whatever the evidence is that it has by now."""
    row = finding_row(gap, directories.places[gap.partition_key]).values()
    values = {name: row[name] for name in _OF_FINDINGS if name in row}
    return Damage(**{**values, "reason": GAP, "found": row["verdict"]})
