"""Segments of the catalog that are missing from a listing."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from kidxlib.build.comparison.known_segments import NOWHERE, Matched, rows_by_partition, same_text
from kidxlib.build.listed import numbers_in
from kidxlib.build.plan import Plan
from kidxlib.catalog.matching import positions_in
from kidxlib.catalog.segment_key import PARTITION_KEY, SEGMENT_KEY
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.topic_partition import PartitionKey

#: The keys of segments.
KEYS: Final = SEGMENTS.schema(SEGMENT_KEY)


@dataclass(frozen=True, slots=True)
class Missing:
    """Segments that were there when the catalog was written. See `Changes`."""

    gone: pa.Table
    emptied: dict[PartitionKey, int]
    missing_at_end: dict[PartitionKey, list[int]]


def missing(plan: Plan, matched: Matched) -> Missing:
    """What a listing lacks.

    Args:
        matched: all that the catalog knows.
    """
    not_listed = matched.where(matched.listed == NOWHERE)
    not_listed = not_listed.where(not_listed.present)
    in_listed_partitions = np.append(plan.have_segments(), False)[not_listed.partitions]  # the last is for `NOWHERE`
    of_listed, of_others = not_listed.where(in_listed_partitions), not_listed.where(~in_listed_partitions)
    others = of_others.known.select(SEGMENT_KEY).cast(KEYS)
    emptied = _emptied(plan, others)
    rows = [dict(zip(PARTITION_KEY, key, strict=True)) for key in emptied]
    is_emptied = positions_in(others, pa.Table.from_pylist(rows, SEGMENTS.schema(PARTITION_KEY)), PARTITION_KEY) >= 0
    gone = pa.concat_tables([of_listed.known.select(SEGMENT_KEY).cast(KEYS), others.filter(pa.array(is_emptied))])
    gone = gone.sort_by([(name, "ascending") for name in SEGMENT_KEY])
    return Missing(gone, emptied, _missing_at_end(plan, of_listed))


def _emptied(plan: Plan, missing: pa.Table) -> dict[PartitionKey, int]:
    """How many segments each partition lacks, of those of which none is left.

    Args:
        missing: the keys of segments of partitions that were not listed, or have no segment.
    """
    listed = {partition.key for partition in plan.partitions}
    return {
        key: count
        for key, count in rows_by_partition(missing).items()
        if (key[0] in plan.log_dirs or key in listed) and key not in plan.unlistable and key[0] not in plan.empty
    }


def _missing_at_end(plan: Plan, missing: Matched) -> dict[PartitionKey, list[int]]:
    """The base offsets of missing segments after the last segment that exists, by partition. Retention leaves none. A
    topic that was recreated under its name starts from the beginning.

    Args:
        missing: rows of segments of partitions that have segments.
    """
    base_offsets, _ = numbers_in(missing.known["base_offset"])
    last = plan.segments["base_offset"].to_numpy()[plan.bounds()[missing.partitions + 1] - 1]
    topic_ids = [partition.topic_id for partition in plan.partitions]
    same_topic = same_text(missing.known["topic_id"], topic_ids, missing.partitions)
    same_topic |= missing.known["topic_id"].is_null().to_numpy()
    same_topic |= np.array([topic_id is None for topic_id in topic_ids], np.bool_)[missing.partitions]
    cut = (base_offsets > last) & same_topic
    found: dict[PartitionKey, list[int]] = defaultdict(list)
    for number, base_offset in sorted(zip(missing.partitions[cut].tolist(), base_offsets[cut].tolist(), strict=True)):
        found[plan.partitions[number].key].append(base_offset)
    return dict(found)
