"""The report's questions to a catalog, as SQL, which the page shows beside the numbers of the answer. A question
whose answer may be too long for a page is a `ListedQuestion`. `ReportAnswers.ask` asks each question once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa

from kidxlib.audit.finding import ALSO
from kidxlib.audit.gaps import GAP
from kidxlib.audit.index_files.leader_epochs import FIRST_LOGS_MISSING
from kidxlib.audit.partition_logs import MISSING
from kidxlib.audit.startup.last_stop import BELOW_CHECKPOINT_REASONS
from kidxlib.catalog.findings import ACCEPTED, FINDINGS, REMOTE_SEGMENTS
from kidxlib.catalog.partitions import PARTITIONS, PRODUCER_EVENTS
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import BUILDS
from kidxlib.operations.damage.acceptances import (
    acceptance_join_condition,
    finding_columns_in_sql,
    segment_columns_in_sql,
)
from kidxlib.operations.recover.fleet import UNFLUSHED
from kidxlib.operations.report.timeline import FUTURE_MS
from kidxlib.tables.protocol import SqlQuestion, TablesToAsk

_PRESENT: Final = "status NOT IN ('gone', 'deleted')"
_KEY_COLUMNS: Final = (("source", pa.string()), ("topic", pa.string()), ("partition", pa.int32()))
_LONG: Final = pa.int64()
_TEXT: Final = pa.string()
_TIME: Final = pa.timestamp("us", tz="UTC")

#: Over how long what was written is counted.
LATELY_MS: Final = 7 * 24 * 3_600_000

#: The column of `ListedQuestion.counts` with the numbers of rows.
COUNTED: Final = "found"

Rows = list[dict[str, Any]]


def _make_question(
    name: str, tables: tuple[Table, ...], columns: tuple[tuple[str, pa.DataType], ...], sql: str
) -> SqlQuestion:
    return SqlQuestion(name, sql.strip(), tables, pa.schema([pa.field(*column) for column in columns]))


@dataclass(frozen=True, slots=True)
class ListedQuestion(SqlQuestion):
    """A question with many rows: the page shows the first ones, up to a limit, and counts all by the values of some
    columns.
    """

    limit: int
    counted_by: tuple[str, ...]

    @property
    def first_rows(self) -> SqlQuestion:
        return SqlQuestion(self.name, f"{self.sql}\nLIMIT {self.limit}", self.tables, self.schema)

    @property
    def counts(self) -> SqlQuestion:
        """Counts rows, shown or not."""
        columns = [self.schema.field(name) for name in self.counted_by]
        counted = ", ".join((*self.counted_by, f"count(*) AS {COUNTED}"))
        grouped = f" GROUP BY {', '.join(self.counted_by)}" if columns else ""
        sql = f"SELECT {counted} FROM (\n{self.sql}\n) AS listed{grouped}"
        return SqlQuestion(
            f"{self.name}, counted", sql, self.tables, pa.schema([*columns, pa.field(COUNTED, pa.int64())])
        )


def _make_listed(
    name: str,
    tables: tuple[Table, ...],
    columns: tuple[tuple[str, pa.DataType], ...],
    sql: str,
    *,
    limit: int = 1_000,
    counted_by: tuple[str, ...] = (),
) -> ListedQuestion:
    question = _make_question(name, tables, columns, sql)
    return ListedQuestion(name, question.sql, tables, question.schema, limit, counted_by)


TOTALS: Final = _make_question(
    "totals",
    (SEGMENTS,),
    (("source", _TEXT), ("topic", _TEXT), ("status", _TEXT), ("segments", _LONG), ("log_bytes", _LONG)),
    """
SELECT source, topic, status, count(*) AS segments, coalesce(sum(log_bytes), 0) AS log_bytes
FROM segments
GROUP BY source, topic, status
ORDER BY source, topic, status
""",
)

PARTITION_COUNTS: Final = _make_question(
    "partitions",
    (PARTITIONS,),
    (("source", _TEXT), ("topic", _TEXT), ("partitions", _LONG), ("present", _LONG)),
    """
SELECT source, topic, count(*) AS partitions, count(*) FILTER (WHERE present) AS present
FROM partitions
GROUP BY source, topic
ORDER BY source, topic
""",
)

LARGEST: Final = _make_question(
    "largest partitions",
    (SEGMENTS,),
    (*_KEY_COLUMNS, ("segments", _LONG), ("log_bytes", _LONG), ("records", _LONG)),
    f"""
SELECT source, topic, partition, count(*) AS segments, sum(log_bytes) AS log_bytes, sum(records) AS records
FROM segments
WHERE {_PRESENT}
GROUP BY source, topic, partition
ORDER BY log_bytes DESC, source, topic, partition
LIMIT 20
""",
)

SHAPE: Final = _make_question(
    "shape",
    (SEGMENTS,),
    (
        ("topic", _TEXT),
        *((name, _LONG) for name in ("segments", "log_bytes", "valid_bytes", "batches", "records")),
        *((name, _LONG) for name in ("uncounted_segments", "index_bytes", "transactional_batches", "control_batches")),
    ),
    f"""
SELECT topic,
       count(*) AS segments,
       coalesce(sum(log_bytes), 0) AS log_bytes,
       coalesce(sum(valid_bytes), 0) AS valid_bytes,
       coalesce(sum(batches), 0) AS batches,
       coalesce(sum(records), 0) AS records,
       count(*) FILTER (WHERE records IS NULL) AS uncounted_segments,
       coalesce(sum(offset_index_bytes), 0) + coalesce(sum(time_index_bytes), 0)
         + coalesce(sum(transaction_index_bytes), 0) AS index_bytes,
       coalesce(sum(transactional_batches), 0) AS transactional_batches,
       coalesce(sum(control_batches), 0) AS control_batches
FROM segments
WHERE {_PRESENT}
GROUP BY topic
ORDER BY log_bytes DESC, topic
""",
)

CODECS: Final = _make_question(
    "codecs",
    (SEGMENTS,),
    (("topic", _TEXT), ("codec", _TEXT), ("segments", _LONG), ("log_bytes", _LONG)),
    f"""
SELECT topic, codec, count(*) AS segments, sum(log_bytes) AS log_bytes
FROM (SELECT topic, log_bytes, explode(codecs) AS codec FROM segments WHERE {_PRESENT} AND codecs IS NOT NULL) AS seen
GROUP BY topic, codec
ORDER BY topic, log_bytes DESC, codec
""",
)

MAGICS: Final = _make_question(
    "message formats",
    (SEGMENTS,),
    (("topic", _TEXT), ("magic", pa.int32()), ("segments", _LONG), ("log_bytes", _LONG)),
    f"""
SELECT topic, magic, count(*) AS segments, sum(log_bytes) AS log_bytes
FROM (SELECT topic, log_bytes, explode(magics) AS magic FROM segments WHERE {_PRESENT} AND magics IS NOT NULL) AS seen
GROUP BY topic, magic
ORDER BY topic, magic
""",
)

PRODUCERS: Final = _make_question(
    "producers",
    (PRODUCER_EVENTS,),
    (("topic", _TEXT), ("producers", _LONG)),
    """
SELECT topic, count(DISTINCT producer_id) AS producers
FROM producer_events
WHERE producer_id >= 0
GROUP BY topic
ORDER BY topic
""",
)

#: Each hour in which a segment has records, and how many bytes a record of the segment takes.
_HOURS_SQL: Final = f"""(
  SELECT source, topic, valid_bytes / cast(records AS double) AS bytes_a_record, explode(records_by_hour) AS hour
  FROM segments
  WHERE {_PRESENT} AND records > 0 AND records_by_hour IS NOT NULL
) AS hours"""

GROWTH: Final = _make_question(
    "growth",
    (SEGMENTS,),
    (("topic", _TEXT), ("day", _LONG), ("records", _LONG), ("certain_records", _LONG), ("bytes", pa.float64())),
    f"""
SELECT topic,
       cast(floor(hour['hour_ms'] / 86400000.0) AS bigint) AS day,
       sum(hour['records']) AS records,
       sum(hour['certain_records']) AS certain_records,
       sum(hour['records'] * bytes_a_record) AS bytes
FROM {_HOURS_SQL}
WHERE hour['hour_ms'] >= 0
GROUP BY topic, cast(floor(hour['hour_ms'] / 86400000.0) AS bigint)
ORDER BY topic, day
""",
)

UNTIMED: Final = _make_question(
    "segments without hours",
    (SEGMENTS,),
    (("topic", _TEXT), ("segments", _LONG), ("log_bytes", _LONG)),
    f"""
SELECT topic, count(*) AS segments, sum(log_bytes) AS log_bytes
FROM segments
WHERE {_PRESENT} AND batches > 0 AND (records_by_hour IS NULL OR records IS NULL OR max_timestamp_ms < 0)
GROUP BY topic
ORDER BY topic
""",
)

DAMAGED: Final = _make_listed(
    "damaged segments",
    (SEGMENTS, ACCEPTED),
    (
        *_KEY_COLUMNS,
        ("base_offset", _LONG),
        *((name, _TEXT) for name in ("status", "reason")),
        ("position", _LONG),
        ("detail", _TEXT),
        ("log_bytes", _LONG),
        ("valid_bytes", _LONG),
        *((name, _TEXT) for name in ("path", "accepted_by", "accepted_reason")),
        ("is_accepted", pa.bool_()),
    ),
    f"""
SELECT s.source, s.topic, s.partition, s.base_offset, s.status, s.reason, s.reason_position AS position,
       s.reason_detail AS detail, s.log_bytes, s.valid_bytes, s.log_path AS path, a.accepted_by, a.accepted_reason,
       a.accepted_by IS NOT NULL AS is_accepted
FROM segments AS s LEFT JOIN accepted AS a
  ON {acceptance_join_condition(segment_columns_in_sql("s"))}
WHERE s.status NOT IN ('ok', 'gone', 'deleted')
ORDER BY is_accepted, s.source, s.topic, s.partition, s.base_offset
""",
    counted_by=("is_accepted",),
)

_LAST_AUDITS_SQL: Final = """
WITH audits AS (SELECT DISTINCT source, topic, partition, audit_id, audited_at FROM findings),
ordered AS (
  SELECT source, topic, partition, audit_id,
         row_number() OVER (PARTITION BY source, topic, partition ORDER BY audited_at DESC, audit_id DESC) AS newest
  FROM audits
),
last AS (
  SELECT f.* FROM findings AS f JOIN ordered AS o
    ON f.source = o.source AND f.topic = o.topic AND f.partition = o.partition AND f.audit_id = o.audit_id
  LEFT ANTI JOIN (SELECT * FROM segments WHERE status IN ('gone', 'deleted')) AS g
    ON f.source = g.source AND f.topic = g.topic AND f.partition = g.partition AND f.base_offset = g.base_offset
  WHERE o.newest = 1
)"""

VERDICTS: Final = _make_question(
    "verdicts",
    (FINDINGS, SEGMENTS),
    (("source", _TEXT), ("file", _TEXT), ("verdict", _TEXT), ("files", _LONG), ("audited_at", _TIME)),
    f"""{_LAST_AUDITS_SQL}
SELECT source, file, verdict, count(*) AS files, min(audited_at) AS audited_at
FROM last
GROUP BY source, file, verdict
ORDER BY source, file, verdict
""",
)

HELD: Final = _make_question(
    "partitions of each source",
    (SEGMENTS, FINDINGS),
    (*_KEY_COLUMNS, ("log_bytes", _LONG), ("is_audited", pa.bool_())),
    f"""
SELECT s.source, s.topic, s.partition, s.log_bytes, f.source IS NOT NULL AS is_audited
FROM (
  SELECT source, topic, partition, coalesce(sum(log_bytes), 0) AS log_bytes
  FROM segments
  WHERE {_PRESENT}
  GROUP BY source, topic, partition
) AS s
LEFT JOIN (SELECT DISTINCT source, topic, partition FROM findings) AS f
  ON s.source = f.source AND s.topic = f.topic AND s.partition = f.partition
ORDER BY s.topic, s.partition, s.source
""",
)

#: Reasons of logs that lack offsets.
_MISSING: Final = (MISSING, *BELOW_CHECKPOINT_REASONS)
_MISSING_IN_SQL: Final = ", ".join(map(repr, _MISSING))


#: A finding may stand for several, one of which is of a log that lacks offsets.
_ALSO_MISSING: Final = " OR ".join(f"coalesce(l.detail, '') LIKE '%{ALSO}{reason}%'" for reason in _MISSING)

LOCAL_FINDINGS: Final = _make_listed(
    "findings",
    (FINDINGS, SEGMENTS, ACCEPTED),
    (
        *_KEY_COLUMNS,
        ("base_offset", _LONG),
        *((name, _TEXT) for name in ("file", "verdict", "reason")),
        ("position", _LONG),
        *((name, _TEXT) for name in ("detail", "consequence", "action")),
        *((name, _LONG) for name in ("kept_bytes", "lost_bytes", "lost_records")),
        *((name, _TEXT) for name in ("path", "accepted_by", "accepted_reason")),
        ("is_accepted", pa.bool_()),
        ("is_gap", pa.bool_()),
        ("is_missing", pa.bool_()),
    ),
    f"""{_LAST_AUDITS_SQL}
SELECT l.source, l.topic, l.partition, l.base_offset, l.file, l.verdict, l.reason, l.position, l.detail, l.consequence,
       l.action, l.kept_bytes, l.lost_bytes, l.lost_records, l.path, a.accepted_by, a.accepted_reason,
       a.accepted_by IS NOT NULL AS is_accepted, l.file = '{GAP}' AS is_gap,
       l.file = '.log' AND (l.reason IN ({_MISSING_IN_SQL}) OR {_ALSO_MISSING}) OR l.reason = '{FIRST_LOGS_MISSING}'
         AS is_missing
FROM last AS l LEFT JOIN accepted AS a
  ON {acceptance_join_condition(finding_columns_in_sql("l"))}
WHERE l.verdict IN ('broken', 'torn')
ORDER BY is_accepted, l.verdict, l.source, l.topic, l.partition, l.base_offset, l.file
""",
    counted_by=("verdict", "is_accepted", "is_gap", "is_missing"),
)


def _rows_by_partition(listed: ListedQuestion, where: str) -> SqlQuestion:
    """How many of the rows each partition has, shown or not."""
    sql = f"""
SELECT source, topic, partition, count(*) AS {COUNTED}
FROM (
{listed.sql}
) AS listed
WHERE {where}
GROUP BY source, topic, partition
ORDER BY source, topic, partition
"""
    return _make_question(f"{listed.name} by partition", listed.tables, (*_KEY_COLUMNS, (COUNTED, _LONG)), sql)


DAMAGED_BY_PARTITION: Final = _rows_by_partition(DAMAGED, "NOT is_accepted")
FINDINGS_BY_PARTITION: Final = _rows_by_partition(LOCAL_FINDINGS, "NOT is_accepted AND NOT is_gap")

GAPS: Final = _make_listed(
    "gaps",
    (SEGMENTS,),
    (*_KEY_COLUMNS, ("base_offset", _LONG), ("next_offset", _LONG), ("next_base_offset", _LONG)),
    f"""
SELECT source, topic, partition, base_offset, next_offset, next_base_offset
FROM (
  SELECT source, topic, partition, base_offset, next_offset,
         lead(base_offset) OVER (PARTITION BY source, topic, partition ORDER BY base_offset) AS next_base_offset
  FROM segments
  WHERE {_PRESENT}
) AS neighbours
WHERE next_offset <> next_base_offset
ORDER BY source, topic, partition, base_offset
""",
)

_LAST_REMOTE_AUDITS_SQL: Final = """
WITH ordered AS (
  SELECT source, audit_id, row_number() OVER (PARTITION BY source ORDER BY audited_at DESC, audit_id DESC) AS newest
  FROM (SELECT DISTINCT source, audit_id, audited_at FROM remote_segments) AS audits
)"""

REMOTE: Final = _make_question(
    "remote segments",
    (REMOTE_SEGMENTS,),
    (
        *((name, _TEXT) for name in ("source", "topic")),
        *((name, _LONG) for name in ("segments", "read_segments", "log_bytes")),
    ),
    f"""{_LAST_REMOTE_AUDITS_SQL}
SELECT r.source AS source, r.topic AS topic, count(*) AS segments, count(*) FILTER (WHERE is_read) AS read_segments,
       coalesce(sum(log_bytes), 0) AS log_bytes
FROM remote_segments AS r JOIN ordered AS o ON r.source = o.source AND r.audit_id = o.audit_id
WHERE o.newest = 1
GROUP BY r.source, r.topic
ORDER BY source, topic
""",
)

REMOTE_FINDINGS: Final = _make_listed(
    "findings in buckets",
    (REMOTE_SEGMENTS,),
    (
        *_KEY_COLUMNS,
        ("start_offset", _LONG),
        ("segment_id", _TEXT),
        *((name, _TEXT) for name in ("file", "verdict", "reason")),
        ("position", _LONG),
        *((name, _TEXT) for name in ("detail", "consequence")),
    ),
    f"""{_LAST_REMOTE_AUDITS_SQL},
found AS (
  SELECT r.source, r.topic, r.partition, r.start_offset, r.segment_id, explode(r.findings) AS finding
  FROM remote_segments AS r JOIN ordered AS o ON r.source = o.source AND r.audit_id = o.audit_id
  WHERE o.newest = 1
)
SELECT source, topic, partition, start_offset, segment_id, finding['file'] AS file, finding['verdict'] AS verdict,
       finding['reason'] AS reason, finding['position'] AS position, finding['detail'] AS detail,
       finding['consequence'] AS consequence
FROM found
ORDER BY verdict, source, topic, partition, start_offset, segment_id, file
""",
    counted_by=("verdict",),
)

LAST_BUILDS: Final = _make_listed(
    "builds",
    (BUILDS,),
    (
        ("build_id", _TEXT),
        ("started_at", _TIME),
        *((name, pa.float64()) for name in ("seconds", "scan_seconds")),
        *((name, _LONG) for name in ("partitions", "segments", "log_bytes", "unchanged", "gone", "rows_changed")),
    ),
    """
SELECT build_id, started_at, seconds, scan_seconds, partitions, segments, log_bytes, unchanged, gone, rows_changed
FROM builds
ORDER BY started_at DESC, build_id
""",
    limit=200,
)


LAST_REMOTE_AUDITS: Final = _make_question(
    "last audits of buckets",
    (REMOTE_SEGMENTS,),
    (("audit_id", _TEXT),),
    f"""{_LAST_REMOTE_AUDITS_SQL}
SELECT audit_id FROM ordered WHERE newest = 1
""",
)


def future(now_ms: int) -> ListedQuestion:
    """The report's question for segments whose largest timestamp is more than an hour ahead, and how much waits behind
    each.
    """
    return _make_listed(
        "future timestamps",
        (SEGMENTS,),
        (
            *_KEY_COLUMNS,
            *((name, _LONG) for name in ("base_offset", "max_timestamp_ms", "later_segments", "later_bytes")),
        ),
        f"""
SELECT source, topic, partition, base_offset, max_timestamp_ms, later_segments, later_bytes
FROM (
  SELECT source, topic, partition, base_offset, max_timestamp_ms,
         count(*) OVER later AS later_segments, coalesce(sum(log_bytes) OVER later, 0) AS later_bytes
  FROM segments
  WHERE {_PRESENT}
  WINDOW later AS (
    PARTITION BY source, topic, partition ORDER BY base_offset ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
  )
) AS ordered
WHERE max_timestamp_ms > {now_ms + FUTURE_MS}
ORDER BY later_bytes DESC, source, topic, partition, base_offset
""",
    )


def future_by_partition(now_ms: int) -> SqlQuestion:
    """The report's question for how many of the rows of `future` each partition has."""
    return _rows_by_partition(future(now_ms), "true")


def written_lately(until_ms: int) -> SqlQuestion:
    """The bytes of records of the seven days before a time (ms since the epoch) of each source, by hours of batches."""
    return _make_question(
        "written in seven days",
        (SEGMENTS,),
        (("source", _TEXT), ("bytes", pa.float64())),
        f"""
SELECT source, coalesce(sum(hour['records'] * bytes_a_record), 0) AS bytes
FROM {_HOURS_SQL}
WHERE hour['hour_ms'] >= {until_ms - LATELY_MS} AND hour['hour_ms'] < {until_ms}
GROUP BY source
ORDER BY source
""",
    )


#: All but those that depend on a time.
QUESTIONS: Final = (
    *(TOTALS, PARTITION_COUNTS, LARGEST, SHAPE, CODECS, MAGICS, PRODUCERS, GROWTH, UNTIMED),
    *(DAMAGED, VERDICTS, HELD, LOCAL_FINDINGS, UNFLUSHED, GAPS, REMOTE, REMOTE_FINDINGS, LAST_BUILDS),
    *(DAMAGED_BY_PARTITION, FINDINGS_BY_PARTITION),
)


@dataclass(frozen=True, slots=True)
class ReportAnswers:
    """The catalog's answers.

    Attributes:
        rows: by the name of the question; of a `ListedQuestion` the first ones.
        counts: of each `ListedQuestion`, by name.
        questions: all that were asked.
    """

    rows: Mapping[str, Rows]
    counts: Mapping[str, Rows]
    questions: Sequence[SqlQuestion]

    @classmethod
    def ask(cls, tables: TablesToAsk, now_ms: int, built_ms: int) -> Self:
        """Ask all questions. `now_ms` is the report's time, `built_ms` that of the last build before it, ms since the
        epoch.
        """
        questions = (*QUESTIONS, future(now_ms), future_by_partition(now_ms), written_lately(built_ms))
        shown = [question.first_rows if isinstance(question, ListedQuestion) else question for question in questions]
        rows = {question.name: tables.ask(question).to_pylist() for question in shown}
        listed = [question for question in questions if isinstance(question, ListedQuestion)]
        counts = {question.name: tables.ask(question.counts).to_pylist() for question in listed}
        return cls(rows, counts, questions)

    def __getitem__(self, question: SqlQuestion) -> Rows:
        return self.rows[question.name]

    def count(self, question: ListedQuestion, **values: str | bool) -> int:
        """How many rows a question has, also those that are not shown, with these values in `counted_by`."""
        return sum(row[COUNTED] for row in self.counts[question.name] if row.items() >= values.items())

    @property
    def cut(self) -> dict[str, dict[str, int]]:
        """How many rows are shown and how many there are, by the name of the question, where not all are shown."""
        return {
            question.name: {"shown": question.limit, "found": self.count(question)}
            for question in self.questions
            if isinstance(question, ListedQuestion) and self.count(question) > question.limit
        }

    @property
    def sql(self) -> dict[str, str]:
        return {question.name: question.sql for question in self.questions}
