"""Tries the ladder of limits (`try_ladder`): sums for each topic, and the end of each of its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.engine.work import Work
from kidxlib.operations.backend import Backend
from kidxlib.operations.report.what_if_work import (
    CONFIGURED_POLICY,
    LADDER,
    LADDER_POLICY,
    LATER_MS,
    WHAT_IF,
    try_limits,
)
from kidxlib.operations.retention.plan_options import PlanOptions
from kidxlib.operations.retention.recorded import (
    FACTS_OF_OFFSETS,
    PresentSegments,
    partitions_to_plan,
    present_topics,
    topics_that_look_compacted,
)
from kidxlib.retention.decide import NONE_STAYS
from kidxlib.retention.policy import DECIDING_CONFIGS, REASONS, UNLIMITED, Origin, Policy, TopicConfig
from kidxlib.run.options import MetadataOptions
from kidxlib.run.retention_configs import ConfiguredTopics
from kidxlib.tables.protocol import counts_of
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import warn_of_first

#: Segments whose limits are tried sooner than workers start.
_FEW_SEGMENTS: Final = 16_000

_CELLS: Final = len(LADDER.times_ms) * len(LADDER.sizes)
_SUMMED_COLUMNS: Final = ("deleted", "freed", "deleted_later", "freed_later")
_LIMITS_BY_OPTION: Final = {"retention.ms": Origin.OPTION, "retention.bytes": Origin.OPTION}


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The results of all limits.

    Attributes:
        rows: of `WhatIfRow`, sorted by topic, partition and source.
        configs: by topic.
        remedies: the option to give where not all of a topic's configuration is known, by topic.
    """

    rows: pa.Table
    configs: Mapping[str, TopicConfig]
    remedies: Mapping[str, str]


def try_ladder(
    backend: Backend, policy: Policy, metadata: MetadataOptions, paths: Mapping[str, str], now_ms: int
) -> WhatIf:
    """Decide on all segments that are present, with each pair of limits, now and a week later. The user's policy is
    completed from the clusters' metadata; `paths` are those of sources, by name.
    """
    tables = backend.catalog.tables
    known = present_topics(tables)
    topics = sorted(set().union(*known.values()))
    segments = PresentSegments(tables, None, list(known), topics)
    configured = ConfiguredTopics.from_metadata(
        metadata, paths, segments.sources, lambda: segments.read_columns(["topic_id"])
    )
    warn_of_first(configured.known.warnings)
    configs = _configs_by_topic(configured, topics, policy)
    remedies = {topic: configured.remedy(topic) for topic, config in configs.items() if config.unknown}
    both = {topic: {CONFIGURED_POLICY: own, LADDER_POLICY: _without_limits(own)} for topic, own in configs.items()}
    rows = segments.read_columns(FACTS_OF_OFFSETS)
    if not rows.num_rows:
        return WhatIf(_sorted_rows([]), configs, remedies)
    compacted = topics_that_look_compacted(rows, what_if=True)
    partitions = counts_of(rows, PARTITIONS.key)
    units = [[share] for share in partitions_to_plan(segments, partitions, backend.engine, both, compacted)]
    options = PlanOptions(now_ms=now_ms, from_files=False, include_internal=False, what_if=True)
    work = Work("report", units, partial(try_limits, options=options), WHAT_IF, is_small=rows.num_rows <= _FEW_SEGMENTS)
    if not work.is_small:
        backend.engine.start()
    with backend.engine.stopping():
        staged = backend.engine.run(work)
        interrupts.raise_if_requested()
        return WhatIf(_sorted_rows([staged.rows("partition")]), configs, remedies)


def what_if_section(what_if: WhatIf) -> dict[str, Any]:
    """The ladder, and a row for each topic: sums for each cell, times first, and the reasons why partitions stop."""
    return {
        "times_ms": list(LADDER.times_ms),
        "sizes": list(LADDER.sizes),
        "later_ms": LATER_MS[1],
        "reasons": [reason.value for reason in REASONS],
        "topics": [
            _topic_as_json(topic, rows, what_if.configs[topic], what_if.remedies.get(topic))
            for topic, rows in _rows_by_topic(what_if.rows)
        ],
    }


def what_if_partitions(what_if: WhatIf) -> dict[str, list[dict[str, Any]]]:
    """Each partition of each topic, by cell."""
    names = ["source", "partition", "segments", "bytes", "kept", "deleted", "stays", "stays_from"]
    return {topic: rows.select(names).to_pylist() for topic, rows in _rows_by_topic(what_if.rows)}


def _configs_by_topic(configured: ConfiguredTopics, topics: list[str], policy: Policy) -> dict[str, TopicConfig]:
    own = {topic: {CONFIGURED_POLICY: policy.of_topic(topic)} for topic in topics}
    completed = configured.complete(own, deletes=False)
    return {topic: of_topic[CONFIGURED_POLICY] for topic, of_topic in completed.items()}


def _without_limits(config: TopicConfig) -> TopicConfig:
    """A topic's configuration without limits, which count as options."""
    unlimited = replace(config.policy, retention_ms=UNLIMITED, retention_bytes=UNLIMITED)
    return TopicConfig(unlimited, {**config.origins, **_LIMITS_BY_OPTION})


def _sorted_rows(tables: list[pa.Table]) -> pa.Table:
    kind = WHAT_IF.field("partition").type
    rows = pa.concat_tables([pa.schema(list(kind)).empty_table(), *tables])
    return rows.sort_by([(name, "ascending") for name in ("topic", "partition", "source")])


def _rows_by_topic(rows: pa.Table) -> list[tuple[str, pa.Table]]:
    topics = [str(topic) for topic in rows["topic"].to_pylist()]
    starts = [number for number in range(len(topics)) if not number or topics[number] != topics[number - 1]]
    return [(topics[start], rows.slice(start, end - start)) for start, end in pairwise([*starts, len(topics)])]


def _topic_as_json(topic: str, rows: pa.Table, config: TopicConfig, remedy: str | None) -> dict[str, Any]:
    stays = _cells_by_partition(rows, "stays")
    stopped = {
        REASONS[number].value if number != NONE_STAYS else "": (stays == number).sum(axis=0).tolist()
        for number in np.unique(stays).tolist()
    }
    return {
        "topic": topic,
        "partitions": rows.num_rows,
        "segments": sum(rows["segments"].to_pylist()),
        "bytes": sum(rows["bytes"].to_pylist()),
        "kept": sorted({reason for reason in rows["kept"].to_pylist() if reason is not None}),
        "configured": {
            "cleanup_policy": config.policy.cleanup_text,
            "retention_ms": config.policy.retention_ms,
            "retention_bytes": config.policy.retention_bytes,
            "remote_storage": config.policy.remote_storage,
            "origins": {name: config.origins[name].value for name in DECIDING_CONFIGS},
            "unknown": list(config.unknown),
            "remedy": remedy,
            "deleted": sum(rows["configured_deleted"].to_pylist()),
            "freed": sum(rows["configured_freed"].to_pylist()),
            "deleted_later": sum(rows["configured_deleted_later"].to_pylist()),
            "freed_later": sum(rows["configured_freed_later"].to_pylist()),
            "due_ms": min((int(due) for due in rows["configured_due_ms"].to_numpy() if due >= 0), default=None),
        },
        **{name: _cells_by_partition(rows, name).sum(axis=0).tolist() for name in _SUMMED_COLUMNS},
        "stopped_by": stopped,
    }


def _cells_by_partition(rows: pa.Table, name: str) -> Any:
    """A column of lists, as a row for each partition."""
    column: Any = rows[name].combine_chunks()
    return column.flatten().to_numpy().astype(np.int64).reshape(rows.num_rows, _CELLS)
