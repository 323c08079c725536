"""What a person would not expect of a plan's decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.matching import Values
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.staged import Staged
from kidxlib.retention.reasons import PlanWarning
from kidxlib.text.counted import counted
from kidxlib.text.times import YEAR_2000_MS, show_time

#: Beyond this nobody counts in days; timestamps of broken clocks reach further than `timedelta`.
_SECONDS_SHOWN: Final = 10**11
#: Units that producers have taken for ms (KAFKA-6482), by how many of them are one.
_OTHER_UNITS: Final = {"µs": 1_000, "ns": 1_000_000}

_OF_TIMES: Final = ("future_ms", "backwards_ms", "largest_timestamp_ms")


@dataclass(frozen=True, slots=True)
class RetentionFinding:
    """Something about segments under one policy that a person would not expect.

    Attributes:
        first: one of them.
        most_ms: how far a timestamp lies in the future, or runs back, at most.
        largest_ms: the largest timestamp of all; None where a segment has none.
        why: of a topic that looks compacted, the first place that does; empty of others.
    """

    policy: str
    warning: PlanWarning
    segments: int
    partitions: int
    first: str
    most_ms: int
    largest_ms: int | None = None
    why: str = ""

    @property
    def _other_unit(self) -> str:
        """What a timestamp of the future may be: one in another unit than ms, if that lies in the past."""
        if self.largest_ms is None:
            return ""
        now_ms = self.largest_ms - self.most_ms
        for unit, divisor in _OTHER_UNITS.items():
            if YEAR_2000_MS <= (as_unit := self.largest_ms // divisor) <= now_ms:
                return f"; in {unit} the largest would be {show_time(as_unit)}"
        return ""

    @property
    def sentence(self) -> str:
        seconds = self.most_ms // 1000
        far = timedelta(seconds=seconds) if 0 < seconds < _SECONDS_SHOWN else f"{self.most_ms} ms"
        segments, partitions = counted(self.segments, "segment"), counted(self.partitions, "partition")
        indexes = counted(self.segments, "time index", "time indexes")
        return {
            PlanWarning.WHOLE_PARTITION: f"{partitions} would lose all segments; a broker then starts an empty one, "
            "--apply keeps the last",
            PlanWarning.LOOKS_COMPACTED: f"{segments} would go though their topic looks compacted, as {self.why}; "
            "cleanup.policy was said to be delete",
            PlanWarning.FUTURE_TIMESTAMP: f"{segments} with timestamps in the future, by up to {far}; time alone keeps "
            f"such a segment until long after that{self._other_unit}",
            PlanWarning.TIMESTAMPS_IN_SECONDS: f"{segments} would go for timestamps of 1970; in seconds the largest "
            f"would be {show_time((self.largest_ms or 0) * 1000)}, and a broker that takes them for ms deletes at once",
            PlanWarning.TIMESTAMPS_BACKWARDS: f"{segments} old enough, kept after one that is not; timestamps run "
            f"backwards, by up to {far}",
            PlanWarning.ONLY_REPLICA: f"{segments} would go that reach above the high watermark of the checkpoint: the "
            "cluster's metadata has no other replica and no broker runs on the log dir, so that a broker that starts "
            "goes by the end of the log; --apply leaves them to it",
            PlanWarning.LATE_HIGH_WATERMARK: f"{segments} would go that reach above the high watermark of the "
            "checkpoint, and stay; a broker that learns a later one from the other replicas deletes them",
            PlanWarning.TIME_INDEX_PADDED: f"{indexes} padded with zeros; a broker takes such a segment for one of "
            "1970 and deletes it by time at once",
            PlanWarning.TIME_INDEX_INCOMPLETE: f"{indexes} without the largest timestamp of the segment; a broker "
            "deletes such a segment too early",
        }[self.warning] + f" (the first: {self.first})"

    def as_json(self) -> dict[str, Any]:
        names = (*(name for name in self.__dataclass_fields__ if name != "why"), "sentence")
        # The key is older than the name of the field.
        return {"surprise" if name == "warning" else name: getattr(self, name) for name in names}


def segment_name(source: str, topic: str, partition: int, base_offset: int) -> str:
    return f"{source}: {topic}-{partition}/{base_offset}"


def findings_of(staged: Staged, looks_compacted: Mapping[str, str]) -> list[RetentionFinding]:
    """The warnings of a plan, by policy.

    Args:
        staged: rows of `PLANNED`.
        looks_compacted: as `topics_that_look_compacted`.
    """
    by = ["policy", "warning"]
    rows = _exploded(staged.rows("segment", [*SEGMENTS.key, "policy", "warnings", *_OF_TIMES]))
    counts = rows.group_by(by).aggregate([([], "count_all"), ("most_ms", "max"), ("largest_timestamp_ms", "max")])
    partitions = rows.group_by([*by, *PARTITIONS.key]).aggregate([]).group_by(by).aggregate([([], "count_all")])
    partitions_of = {(row["policy"], row["warning"]): row["count_all"] for row in partitions.to_pylist()}
    found = []
    for row in counts.to_pylist():
        first = _first(rows, row["policy"], row["warning"])
        finding = RetentionFinding(
            policy=row["policy"],
            warning=PlanWarning(row["warning"]),
            segments=row["count_all"],
            partitions=partitions_of[row["policy"], row["warning"]],
            first=segment_name(*(first[name] for name in SEGMENTS.key)),
            most_ms=row["most_ms_max"],
            largest_ms=row["largest_timestamp_ms_max"],
            why=looks_compacted.get(first["topic"], ""),
        )
        found.append(finding)
    return sorted(found, key=lambda finding: (finding.policy, finding.warning))


def _exploded(rows: pa.Table) -> pa.Table:
    """A row for each warning, with how far it goes."""
    warnings: Values = rows["warnings"].combine_chunks()
    parents: Values = pc.list_parent_indices(warnings)
    rows = rows.drop_columns(["warnings"]).take(parents)
    words: Values = pc.list_flatten(warnings)
    is_future: Values = pc.equal(words, pa.scalar(PlanWarning.FUTURE_TIMESTAMP.value))
    most: Values = pc.if_else(is_future, rows["future_ms"], rows["backwards_ms"])
    return rows.append_column("warning", words).append_column("most_ms", most)


def _first(rows: pa.Table, policy: str, warning: str) -> dict[str, Any]:
    """The first segment by name that a warning is about."""
    rows = rows.filter((pc.field("policy") == policy) & (pc.field("warning") == warning))
    for name in SEGMENTS.key:
        rows = rows.filter(pc.field(name) == pc.min(rows[name]))
    row: dict[str, Any] = rows.slice(0, 1).to_pylist()[0]
    return row
