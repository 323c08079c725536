"""The report as a whole: its sections, and parts that a page unpacks once somebody asks for them (`make_report`); and
the page, one HTML file with its data, its styles, its scripts and the library that draws, and no network
(`write_page`).
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import importlib.metadata
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import BUILDS
from kidxlib.engine.shares import cut_by_weight
from kidxlib.errors import UsageError
from kidxlib.indexing.source import ANY_TOPIC
from kidxlib.operations.backend import Backend
from kidxlib.operations.damage.known_damage import KnownGapsAndLosses
from kidxlib.operations.report.attention import attention
from kidxlib.operations.report.questions import LAST_REMOTE_AUDITS, LOCAL_FINDINGS, ReportAnswers, future
from kidxlib.operations.report.sections import (
    audited_before_build,
    builds_section,
    changes_section,
    fleet_section,
    growth_section,
    health_section,
    outlook_section,
    overview_section,
    replicas_section,
    shape_section,
)
from kidxlib.operations.report.timeline import (
    PartitionName,
    local_lanes,
    mark_differing,
    mark_expired,
    ordered_lanes,
    remote_lanes,
    timeline_index,
    timelines,
)
from kidxlib.operations.report.what_if import WhatIf, try_ladder, what_if_partitions, what_if_section
from kidxlib.retention.policy import Cleanup, Origin, Policy, TopicConfig
from kidxlib.run.known_topics import read_known_topics
from kidxlib.run.sources import as_sources, list_sources, source_paths, sources_in_one_directory
from kidxlib.tables.protocol import TablesToAsk
from kidxlib.terminal.console import begin_phase, printable
from kidxlib.terminal.options import MetadataOptions
from kidxlib.text.times import to_ms

if TYPE_CHECKING:
    from kidxlib.operations.report.savings import TopicSavings

#: The version of the JSON object; it changes with a name or a meaning.
REPORT_VERSION: Final = 1
_DAY_MS: Final = 24 * 3_600_000
#: The template of a page, its styles, its scripts and the library that draws.
_PAGE_FILES: Final = files(__package__) / "page"
#: In the order of the page: scripts that others use come first.
_SCRIPTS: Final = (
    *("data", "format", "dom", "table", "chart", "glance", "fleet", "overview", "health", "timeline_chart", "timeline"),
    *("retention", "shape", "growth", "replicas", "builds", "main"),
)
#: Partitions whose details are unpacked together, once somebody looks at one of them.
_PARTITIONS_A_PART: Final = 200
_GZIP_LEVEL: Final = 6


@dataclass(frozen=True, slots=True)
class Report:
    """A report, ready for JSON.

    Attributes:
        head: when and of which catalog it was made, and what needs attention.
        sections: what each page shows at once, by the page's name.
        retention_partitions: each partition with other limits, by topic.
        timelines: the lanes of each partition.
    """

    head: Mapping[str, Any]
    sections: Mapping[str, Any]
    retention_partitions: Mapping[str, Sequence[Mapping[str, Any]]]
    timelines: Mapping[PartitionName, Sequence[Mapping[str, Any]]]

    def as_json(self) -> dict[str, Any]:
        lanes = [
            {"topic": topic, "partition": partition, "lanes": lanes}
            for (topic, partition), lanes in self.timelines.items()
        ]
        parts = {"retention_partitions": self.retention_partitions, "timelines": lanes}
        return {**self.head, **self.sections, **parts}


def make_report(backend: Backend, now: datetime, *, policy: Policy, metadata: MetadataOptions, sample: int) -> Report:
    """Ask the catalog, try limits of retention, and put both together. `policy` has the configurations of topics,
    completed from the clusters' metadata. `sample` batches of each topic are read to measure what other settings of
    producers would save; 0 for none.
    """
    tables = backend.catalog.tables
    assert isinstance(tables, TablesToAsk)  # a run without a catalog makes no report
    now_ms = to_ms(now)
    begin_phase("asking the catalog")
    started = [to_ms(row["started_at"]) for row in tables.read(BUILDS, ["started_at"]).to_pylist()]
    built_ms = min(max(started, default=now_ms), now_ms)
    answers, paths = ReportAnswers.ask(tables, now_ms, built_ms), source_paths(tables)
    seen = list_sources(as_sources(paths))
    begin_phase("trying limits of retention")
    what_if = try_ladder(backend, policy, metadata, seen.answering(paths), now_ms)
    begin_phase("putting the report together")
    known = read_known_topics(as_sources(seen.answering(paths)), options=metadata)
    missing = KnownGapsAndLosses.in_sources(tables, list(paths), ANY_TOPIC, known, seen)
    compacted = [topic for topic, config in what_if.configs.items() if _is_compacted(config)]
    ahead = [{**row, "ahead": _days_or_hours(row["max_timestamp_ms"] - now_ms)} for row in answers[future(now_ms)]]
    sections: dict[str, Any] = {
        "overview": {**overview_section(answers), "changes": changes_section(tables)},
        "health": {
            **health_section(answers, paths, tables.path, missing.gaps),
            **missing.in_log_dirs_as_json(),
            "sources_twice": [asdict(source) for source in sources_in_one_directory(tables, list(paths))],
        },
        "retention": {**what_if_section(what_if), "future": ahead, "future_segments": answers.count(future(now_ms))},
        "shape": shape_section(answers, _measured_savings(tables, sample)),
        "growth": growth_section(answers),
        "replicas": replicas_section(tables, answers, compacted, known),
        "builds": builds_section(answers, tables),
    }
    health = sections["health"]
    not_audited = {*health["not_audited"], *audited_before_build(health, sections["builds"])}
    sections["fleet"] = fleet_section(answers, sections, not_audited, now_ms)
    listed = {name: path for name, path in paths.items() if name in seen.partitions}
    sections["outlook"] = outlook_section(answers, sections, listed, built_ms)
    lanes = _partition_timelines(tables, answers, sections, what_if, now_ms)
    return Report(
        head={
            "report_version": REPORT_VERSION,
            "kidx": importlib.metadata.version("kidx"),
            "made_at_ms": now_ms,
            "catalog": tables.path,
            "attention": attention(sections, now_ms),
            "sql": answers.sql,
            "cut": answers.cut,
        },
        sections={**sections, "timeline": timeline_index(lanes)},
        retention_partitions=what_if_partitions(what_if),
        timelines=lanes,
    )


def _partition_timelines(
    tables: TablesToAsk, answers: ReportAnswers, sections: Mapping[str, Any], what_if: WhatIf, now_ms: int
) -> dict[PartitionName, list[dict[str, Any]]]:
    audits = {row["audit_id"] for row in tables.ask(LAST_REMOTE_AUDITS).to_pylist()}
    broken = [{name: row[name] for name in SEGMENTS.key} for row in answers[LOCAL_FINDINGS]]
    broken_segments = pa.Table.from_pylist(broken, SEGMENTS.schema(SEGMENTS.key))
    lanes = [local_lanes(tables, broken_segments), remote_lanes(tables, audits)]
    columns = ("source", "topic", "partition", "configured_deleted")
    decided: Any = zip(*(what_if.rows[name].to_pylist() for name in columns), strict=True)
    rows = mark_expired(ordered_lanes(lanes, now_ms), {tuple(key): deleted for *key, deleted in decided})
    rows = mark_differing(rows, _first_differences(sections["replicas"]))
    bounds = tables.read(PARTITIONS, [*PARTITIONS.key, "log_start_offset", "high_watermark", "log_end_offset"])
    health = sections["health"]
    with_problems = [health[name] for name in ("damaged", "files", "remote_files", "lost_gaps", "gaps")]
    with_problems += [sections["retention"]["future"], sections["replicas"]["partitions"]]
    first = {(row["topic"], row["partition"]) for section in with_problems for row in section}
    return timelines(rows, bounds, first)


def _measured_savings(tables: TablesToAsk, sample: int) -> list[TopicSavings]:
    if not sample:
        return []  # without importing what reads records, which takes twenty seconds to be compiled the first time
    from kidxlib.operations.report.savings import measure_savings

    return measure_savings(tables, sample)


def _is_compacted(config: TopicConfig) -> bool:
    return config.origins["cleanup.policy"] is not Origin.KAFKA and Cleanup.COMPACT in config.policy.cleanup


def _first_differences(replicas: Mapping[str, Any]) -> dict[tuple[str, str, int], int]:
    """The first offset at which each replica differs, by source, topic and partition."""
    offsets = {}
    for row in replicas["partitions"]:
        if (difference := row["difference"]) is not None:
            first = difference["first_offset"] if difference["offset"] is None else difference["offset"]
            offsets[row["source"], row["topic"], row["partition"]] = first
    return offsets


def _days_or_hours(ms: int) -> str:
    days = ms / _DAY_MS
    return f"{days:,.0f} days" if days >= 2 else f"{ms / 3_600_000:,.1f} hours"


def write_page(report: Report, output: Path) -> int:
    """Write the page, whole or not at all. Returns its bytes."""
    page = page_of(report).encode()
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        try:
            part.write_bytes(page)
            part.replace(output)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"--output {output}: cannot be written: {error.strerror}; name another place") from error
    return len(page)


def page_of(report: Report) -> str:
    """The page as text. Names come into it only as data: the title is escaped, all else is packed."""
    library = _read_asset("echarts/echarts.min.js")
    scripts = '(() => {\n"use strict";\n' + "\n".join(_read_asset(f"scripts/{name}.js") for name in _SCRIPTS) + "})();"
    styles = _read_asset("report.css")
    parts = "\n".join(
        f'<script type="application/gzip" id="part-{name}">{_gzip_as_base64(part)}</script>'
        for name, part in _report_parts(report)
    )
    return Template(_read_asset("page.html")).substitute(
        policy=_content_security_policy([library, scripts], styles),
        title=html.escape(printable(report.head["catalog"])),
        styles=styles,
        parts=parts,
        library=library,
        scripts=scripts,
    )


def _report_parts(report: Report) -> Iterator[tuple[str, Any]]:
    """Parts that are unpacked as a whole, by name. The first tells in which part the details of each topic and
    partition are.
    """
    retention = _divide_details(report.retention_partitions)
    timelines = _divide_details({f"{topic}-{number}": lanes for (topic, number), lanes in report.timelines.items()})
    where = {
        "retention_part": {topic: number for number, part in enumerate(retention) for topic in part},
        "timeline_part": {name: number for number, part in enumerate(timelines) for name in part},
    }
    yield "main", {**report.head, **report.sections, **where}
    yield from ((f"retention-{number}", part) for number, part in enumerate(retention))
    yield from ((f"timeline-{number}", part) for number, part in enumerate(timelines))


def _divide_details(details: Mapping[str, Sequence[Any]]) -> list[dict[str, Sequence[Any]]]:
    items, sizes = list(details.items()), [len(of_name) for of_name in details.values()]
    return [dict(items[start:end]) for start, end in cut_by_weight(sizes, _PARTITIONS_A_PART)]


def _gzip_as_base64(part: Any) -> str:
    text = json.dumps(part, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("utf-8", "backslashreplace"), _GZIP_LEVEL, mtime=0)).decode()


def _content_security_policy(scripts: Iterable[str], styles: str) -> str:
    """A content security policy under which nothing runs or loads that is not in the file, and nothing is sent."""
    allowed = " ".join(_csp_digest(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_csp_digest(styles)}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _csp_digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _read_asset(name: str) -> str:
    return _PAGE_FILES.joinpath(name).read_text(encoding="utf-8")
