"""What a person would not expect of a plan's decisions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.retention.reasons import PlanWarning

#: Beyond this nobody counts in days; timestamps of broken clocks reach further than `timedelta`.
_SECONDS_SHOWN: Final = 10**11


@dataclass(frozen=True, slots=True)
class RetentionFinding:
    """Something about segments under one policy that a person would not expect.

    Attributes:
        first: one of them.
        most_ms: how far a timestamp lies in the future, or runs back, at most.
    """

    policy: str
    warning: PlanWarning
    segments: int
    partitions: int
    first: str
    most_ms: int

    @property
    def sentence(self) -> str:
        seconds = self.most_ms // 1000
        far = timedelta(seconds=seconds) if 0 < seconds < _SECONDS_SHOWN else f"{self.most_ms} ms"
        return {
            PlanWarning.WHOLE_PARTITION: f"{self.partitions:,} partitions lose all their segments; a broker then "
            "starts an empty one, --apply keeps the last",
            PlanWarning.LOOKS_COMPACTED: f"{self.segments:,} segments go though their topics look compacted: offsets "
            "are missing in them; cleanup.policy was said to be delete",
            PlanWarning.FUTURE_TIMESTAMP: f"{self.segments:,} segments have timestamps in the future, by up to {far}; "
            "time alone keeps them until long after that",
            PlanWarning.TIMESTAMPS_BACKWARDS: f"{self.segments:,} segments are old enough and stay after one that is "
            f"not; timestamps run backwards, by up to {far}",
            PlanWarning.TIME_INDEX_PADDED: f"{self.segments:,} time indexes are padded with zeros; a broker takes "
            "their segments for those of 1970 and deletes them by time at once",
            PlanWarning.TIME_INDEX_INCOMPLETE: f"{self.segments:,} time indexes end before the largest timestamp of "
            "their segments; a broker deletes these too early",
        }[self.warning] + f" (the first: {self.first})"

    def as_json(self) -> dict[str, Any]:
        names = (*self.__dataclass_fields__, "sentence")
        # The key is older than the name of the field.
        return {"surprise" if name == "warning" else name: getattr(self, name) for name in names}


def segment_name(source: str, topic: str, partition: int, base_offset: int) -> str:
    return f"{source}: {topic}-{partition}/{base_offset}"


def findings_of(planned: DataFrame) -> list[RetentionFinding]:
    exploded = planned.withColumn("warning", F.explode("warnings"))
    grouped = exploded.groupBy("policy", "warning").agg(
        F.count("*").alias("segments"),
        F.count_distinct(*SEGMENTS.key[:3]).alias("partitions"),
        F.min(F.struct(*SEGMENTS.key)).alias("first"),
        F.max(
            F.when(F.col("warning") == PlanWarning.FUTURE_TIMESTAMP.value, F.col("future_ms")).otherwise(
                F.col("backwards_ms")
            )
        ).alias("most_ms"),
    )
    found = [
        RetentionFinding(
            policy=row["policy"],
            warning=PlanWarning(row["warning"]),
            segments=row["segments"],
            partitions=row["partitions"],
            first=segment_name(*row["first"]),
            most_ms=row["most_ms"],
        )
        for row in grouped.collect()
    ]
    return sorted(found, key=lambda finding: (finding.policy, finding.warning))
