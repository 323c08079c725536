"""Gaps: offsets that are in no log of a partition, between two logs. What explains each, and who knows the offsets.

A broker gives offsets without a gap, and each log begins where the one before it ends (`UnifiedLog.roll`,
`LocalLog.roll`: at the log end offset; a follower's at its first batch, which is the same where its leader's log has no
gap). Retention, `DeleteRecords`, tiered storage and `truncateFullyAndStartAt` take logs away from the start, truncation
and recovery from the end. The cleaner alone leaves gaps between logs. So a gap that no compaction explains is a log
that was lost. Evidence is asked in this order, and the first that answers is named:

1. `cleanup.policy` by the cluster's metadata: with `compact` the cleaner may have made the gap, without it has not.
2. The topic's name: brokers make `__consumer_offsets` and `__transaction_state` with `compact`.
3. Logs of the topic in the same source that lack records within: the cleaner was there. A gap between logs is no such
   evidence, and neither is what another source lacks.
4. Files of the cleaner over the gap: `.swap` or `.cleaned`, or a log beside the `.deleted` one that it has replaced;
   with these other `.deleted` files. Alone they are no evidence: retention, truncation and people rename logs so, too.
5. The log before the gap is damaged: nobody can tell which of the gap's offsets it had.

A gap that nothing explains is lost. Then others are asked for its offsets (`GapKnownBy`): logs under other names and in
other places of the same log dirs, other sources of the same topic, rows of logs that a catalog had, the partition's own
producer snapshots.

To use it: `gaps_in(rows of segments, …)`, then `FoundGaps.with_known(…)` where there are others to ask, and
`Gap.row` for a row as an audit has it.
"""

from __future__ import annotations

import contextlib
import enum
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.catalog.conditions import PRESENT, rows_where
from kidxlib.catalog.findings import FileFinding
from kidxlib.catalog.matching import Flags, Values, differing
from kidxlib.catalog.rows import PARTITION_KEY, SEGMENT_KEY
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import CheckpointError, SnapshotError
from kidxlib.format import segment_files
from kidxlib.format.checkpoint_files import CLEANER_CHECKPOINT
from kidxlib.format.layouts import OFFSET_INDEX_ENTRY
from kidxlib.format.producer_snapshot import read_snapshot
from kidxlib.format.topic_partition import COMPACTED_BY_BROKERS, PartitionKey, TopicPartition
from kidxlib.log.metadata_image import ConfigValue
from kidxlib.recovery.outcome import ABSENT, Status
from kidxlib.storage.location import Location, as_text, files_in
from kidxlib.storage.log_dir import read_offset_checkpoint
from kidxlib.storage.logs_aside import LogAside, LogsAside, put_in_place, remedy_of
from kidxlib.storage.small_files import filled_file, snapshot_file
from kidxlib.text.words import counted

#: What findings on gaps have in place of a file's suffix, and what acceptances have for their reason.
GAP: Final = "gap"
#: The columns of `segments` that gaps are found by; the rows of segments that are absent may be among them.
FACTS: Final = (*SEGMENT_KEY, "topic_id", "status", "next_offset", "records", "log_bytes")

_COMPACT: Final = "compact"
_RANGE_IN_DETAIL: Final = re.compile(r"offsets ([0-9]+) to ([0-9]+) are in no log")
_CLEANER_SUFFIXES: Final = (segment_files.SWAP_SUFFIX, segment_files.CLEANED_SUFFIX, segment_files.DELETED_SUFFIX)

#: `cleanup.policy` of a topic of a source; None where nobody knows it.
PolicyOf: TypeAlias = Callable[[str, str], ConfigValue | None]


class Evidence(enum.StrEnum):
    """What says where the offsets of a gap are, in the order in which it is asked."""

    POLICY = "cleanup-policy"
    KAFKAS_OWN = "compacted-by-kafka"
    LACKING_WITHIN = "logs-lack-records"
    CLEANERS_FILES = "files-of-the-cleaner"
    DAMAGED_LOG = "damaged-log"
    KNOWN = "known-elsewhere"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class GapKnownBy:
    """Who knows offsets that are in a gap.

    Attributes:
        who: in words, as `source b`, or the name of a file.
        says: what it says, where it does not have the records.
        records, log_bytes: of what it has in the gap; None where that cannot be counted.
    """

    who: str
    says: str | None = None
    records: int | None = None
    log_bytes: int | None = None

    @property
    def in_words(self) -> str:
        if self.says is not None:
            return f"{self.who} {self.says}"
        bytes_ = "" if self.log_bytes is None else f" in {counted(self.log_bytes, 'byte')}"
        records = "an unknown number of records" if self.records is None else counted(self.records, "record")
        return f"{self.who} has {records} of them{bytes_}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Offsets of a partition that are in none of its logs, and that no compaction explains.

    Attributes:
        first_offset, last_offset: of the gap; both are missing.
        evidence: `POLICY`, `KNOWN` or `NONE`.
        why: what says that they are lost, or that nothing explains it, in words.
        topic_id: None where it is not known.
        known_by: who knows some of them: other logs first, then files of the partition.
        aside: logs that have some of them, and that no broker loads as the partition's.
        remedy: what to do about these; None where there are none.
    """

    source: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    evidence: Evidence
    why: str
    topic_id: str | None = None
    known_by: tuple[GapKnownBy, ...] = ()
    aside: tuple[LogAside, ...] = ()
    remedy: str | None = None

    @property
    def partition_key(self) -> PartitionKey:
        return self.source, self.topic, self.partition

    @property
    def name(self) -> str:
        """The gap's name in messages and for `kidx accept --gap`: `orders-3/100-199`."""
        return f"{self.topic}-{self.partition}/{self.first_offset}-{self.last_offset}"

    @property
    def brief(self) -> str:
        return f"{self.name} (see {as_text(self.aside[0].path)})" if self.aside else self.name

    @property
    def offsets(self) -> int:
        return self.last_offset - self.first_offset + 1

    @property
    def reason(self) -> str:
        return "gap-unexplained" if self.evidence is Evidence.NONE else GAP

    @property
    def detail(self) -> str:
        """What is missing. An acceptance is of this text: it names the range, and no evidence that may come later."""
        return f"offsets {self.first_offset} to {self.last_offset} are in no log ({counted(self.offsets, 'offset')})"

    @property
    def consequence(self) -> str:
        named = {as_text(log.path) for log in self.aside}
        known = "; ".join((self.why, *(known.in_words for known in self.known_by if known.who not in named)))
        to_do = self.remedy or "look for the log on other replicas and copies"
        return f"{known}. Consumers and followers pass over these offsets without a word: {to_do}"

    @property
    def finding(self) -> Finding:
        return Finding(
            file=GAP, verdict=Verdict.BROKEN, reason=self.reason, detail=self.detail, consequence=self.consequence
        )

    def as_json(self) -> dict[str, Any]:
        known = [asdict(each) for each in self.known_by]
        shown = {name: getattr(self, name) for name in (*PARTITION_KEY, "first_offset", "last_offset", "offsets")}
        return {**shown, "reason": self.reason, "evidence": self.evidence.value, "why": self.why, "known_by": known}

    def row(self, directory: Location) -> FileFinding:
        """The gap as a row of `findings`: of the log that would begin where it begins, in the partition's directory."""
        finding = self.finding
        return FileFinding.of(
            {
                **{name: getattr(self, name) for name in PARTITION_KEY},
                "base_offset": self.first_offset,
                "file": finding.file,
                "verdict": finding.verdict.value,
                "reason": finding.reason,
                "detail": finding.detail,
                "consequence": finding.consequence,
                "path": as_text(directory / segment_files.segment_file(self.first_offset, segment_files.LOG_SUFFIX)),
            }
        )


def range_in(detail: str | None) -> str | None:
    """The offsets that the detail of a finding on a gap names, as `100-199`; None where it names none."""
    match = _RANGE_IN_DETAIL.match(detail or "")
    return None if match is None else f"{match[1]}-{match[2]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedGaps:
    """The gaps of a topic that have one explanation.

    Attributes:
        evidence: any but `KNOWN` and `NONE`.
        why: what explains them, in words.
        gaps, partitions, offsets: how many.
    """

    source: str
    topic: str
    evidence: Evidence
    why: str
    gaps: int
    partitions: int
    offsets: int

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "evidence": self.evidence.value}


@dataclass(frozen=True, slots=True)
class FoundGaps:
    """The gaps between logs.

    Attributes:
        lost: those that no compaction explains, by source, topic, partition and offset.
        explained: the others, by source and topic.
        borders: how many places between two logs were looked at.
        unknown_borders: how many were not, as the end of the log before them is not known.
        above_cleaner: the directories of compacted partitions with a gap above the offset that their log dir's
            `cleaner-offset-checkpoint` has, and that offset. A broker writes it once a cleaning is done
            (`LogCleaner.cleanLog`), and a follower copies gaps from a leader that has cleaned: so nobody can tell
            these gaps from logs that are lost.
    """

    lost: tuple[Gap, ...] = ()
    explained: tuple[ExplainedGaps, ...] = ()
    borders: int = 0
    unknown_borders: int = 0
    above_cleaner: tuple[tuple[str, int], ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "gaps": [gap.as_json() for gap in self.lost],
            "gaps_explained": [gaps.as_json() for gaps in self.explained],
            "borders": self.borders,
            "borders_unknown": self.unknown_borders,
        }

    def with_known(self, rows: pa.Table) -> FoundGaps:
        """The gaps, with what logs elsewhere know of the lost offsets. `rows` are `FACTS` of any segments: those of
        other sources, and those that a catalog has or had of the same source.
        """
        if not self.lost:
            return self
        rows = rows.filter(pc.is_in(rows["topic"], value_set=pa.array(sorted({gap.topic for gap in self.lost}))))
        by_partition: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        for row in rows.filter(rows["next_offset"].is_valid()).to_pylist():
            by_partition[row["topic"], row["partition"]].append(row)
        lost = [
            _with_known_by(gap, _known_by_other_logs(gap, by_partition[gap.topic, gap.partition])) for gap in self.lost
        ]
        return replace(self, lost=tuple(lost))

    def without_logs_at(self, missing: Mapping[PartitionKey, Collection[int]]) -> FoundGaps:
        """The gaps without those that have a finding already: a log is missing there, and its `.index` is left.
        `missing` has the base offsets of such logs.
        """

        def has_finding(gap: Gap) -> bool:
            return any(gap.first_offset <= base <= gap.last_offset for base in missing.get(gap.partition_key, ()))

        return replace(self, lost=tuple(gap for gap in self.lost if not has_finding(gap)))


@dataclass(frozen=True, slots=True)
class GapEvidence:
    """The directories of partitions as evidence on gaps: they are asked for files of the cleaner, logs under other
    names and producer snapshots. A directory that cannot be listed says nothing.
    """

    places: Mapping[PartitionKey, Location] = field(default_factory=dict)

    def file_names(self, key: PartitionKey) -> Collection[str]:
        place = self.places.get(key)
        try:
            return () if place is None else files_in(place)
        except OSError:
            return ()

    def logs_aside(self, gap: Gap, search: LogsAside, overlapping: Iterable[Mapping[str, Any]]) -> Iterator[LogAside]:
        """The logs that begin in a gap, and that no broker loads as the partition's, because of their names or places.
        A log in another partition's directory is among them if it overlaps that partition's logs (`overlapping`, rows
        of `FACTS`) and fills the gap to the offset.
        """
        directory = self.places.get(gap.partition_key)
        if directory is None:
            return
        yield from search.logs(directory, gap.first_offset, gap.last_offset + 1)
        log = segment_files.segment_file(gap.first_offset, segment_files.LOG_SUFFIX)
        for row in overlapping:
            place = self.places.get((row["source"], row["topic"], row["partition"]))
            fits = (row["base_offset"], row["next_offset"]) == (gap.first_offset, gap.last_offset + 1)
            if fits and place not in (None, directory):
                yield LogAside(place / log, gap.first_offset, directory / log, place.name)

    def emptied_log(self, gap: Gap) -> Iterator[GapKnownBy]:
        """The log of a gap if it is there with 0 bytes, beside an `.index` that knows of more."""
        if (place := self.places.get(gap.partition_key)) is None:
            return
        log = place / segment_files.segment_file(gap.first_offset, segment_files.LOG_SUFFIX)
        index = place / segment_files.segment_file(gap.first_offset, segment_files.OFFSET_INDEX_SUFFIX)
        with contextlib.suppress(OSError):
            entries = len(filled_file(index, OFFSET_INDEX_ENTRY.itemsize)) // OFFSET_INDEX_ENTRY.itemsize
            if entries and log.stat().st_size == 0:
                says = f"is there with 0 bytes, beside an .index of {counted(entries, 'entry', 'entries')}"
                yield GapKnownBy(who=log.name, says=says)

    def producers_at(self, key: PartitionKey, offset: int) -> NDArray[np.void] | None:
        """The entries of a producer snapshot; None where there is none that is whole."""
        path = self.places[key] / segment_files.segment_file(offset, segment_files.SNAPSHOT_SUFFIX)
        try:
            data = snapshot_file(path)
            return None if data is None else read_snapshot(data)
        except (OSError, SnapshotError):
            return None


@dataclass(frozen=True, slots=True)
class _Judgement:
    """What some evidence says about a gap, or about all gaps of a topic."""

    evidence: Evidence
    why: str
    explains: bool


#: The source and the topic of explained gaps, and what explains them; how many gaps, partitions and offsets.
_Explained: TypeAlias = tuple[str, str, _Judgement, int, int, int]


def gaps_in(rows: pa.Table, policy_of: PolicyOf, directories: GapEvidence) -> FoundGaps:
    """The gaps between the logs of partitions, and what explains them. `rows` are `FACTS` of all segments of these
    partitions; those that are absent are no logs.
    """
    logs = rows_where(rows, [PRESENT]).sort_by([(name, "ascending") for name in SEGMENT_KEY])
    borders = _find_borders(logs)
    found = FoundGaps(borders=int(borders.is_border.sum()), unknown_borders=int(borders.is_unknown.sum()))
    gap_rows = _gap_rows(borders)
    if not gap_rows.num_rows:
        return found
    lacking = _lacking_within(logs)
    of_topics = {
        topic: _judge_topic(topic[1], policy_of(*topic), topic in lacking) for topic in _distinct_topics(gap_rows)
    }
    is_explained = [of_topics[topic].explains for topic in _topics_of_rows(gap_rows)]
    explained_rows = gap_rows.filter(pa.array(is_explained, pa.bool_()))
    explained, lost = list(_explain_by_topic(explained_rows, of_topics)), list[Gap]()
    above_cleaner = tuple(_gaps_above_cleaner(explained_rows, directories))
    overlapping = _overlapping_logs(borders)
    search = LogsAside(sorted({place.parent for place in directories.places.values()}, key=str))
    for row in gap_rows.filter(pa.array([not each for each in is_explained], pa.bool_())).to_pylist():
        gap = _gap_of_row(row, of_topics[row["source"], row["topic"]])
        names = directories.file_names(gap.partition_key)
        judgement = _judge_gap(gap, names, is_damaged=row["after_damage"])
        if judgement is None:
            aside = tuple(directories.logs_aside(gap, search, overlapping))
            by_logs = (GapKnownBy(who=as_text(log.path), says="begins among them") for log in aside)
            known = (*directories.emptied_log(gap), *by_logs, *_known_by_snapshots(gap, names, directories))
            lost.append(_with_known_by(replace(gap, aside=aside, remedy=remedy_of(aside)), known))
        else:
            explained.append((gap.source, gap.topic, judgement, 1, 1, gap.offsets))
    return replace(
        found, lost=tuple(lost), explained=tuple(_sum_explained_gaps(explained)), above_cleaner=above_cleaner
    )


#: Gaps, with their partition: the first and the last offset, which are both missing; whether the log before is damaged.
_GAP_ROWS: Final = pa.schema(
    [
        *SEGMENTS.schema((*PARTITION_KEY, "topic_id")),
        pa.field("first_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
        pa.field("after_damage", pa.bool_()),
    ]
)


def _lacking_within(logs: pa.Table) -> frozenset[tuple[str, str]]:
    """Source and topic of logs that are whole and have fewer records than offsets, within batches that the cleaner has
    thinned out, or between batches. A log counts for nothing if wrappers of magic 0 or 1 hide how many records it has.
    """
    logs = logs.filter(pc.equal(logs["status"], pa.scalar(Status.OK.value)))
    offsets: Values = pc.subtract(logs["next_offset"], logs["base_offset"])
    fewer: Values = pc.less(logs["records"], offsets).fill_null(False)
    return frozenset(_distinct_topics(logs.filter(fewer)))


@dataclass(frozen=True, slots=True)
class _Borders:
    """The logs of partitions in order, and what is between each log and the one before it.

    Attributes:
        ends: the largest end of the partition's logs before a log; −1 without one.
        is_border: the partition has a log before it.
        is_unknown: it has, and the end of the one right before it is not known.
        after_damage: it has, and the one right before it is not whole.
    """

    logs: pa.Table
    ends: NDArray[np.int64]
    is_border: Flags
    is_unknown: Flags
    after_damage: Flags


def _find_borders(logs: pa.Table) -> _Borders:
    count = logs.num_rows
    is_border, ends = np.zeros(count, np.bool_), np.full(count, -1, np.int64)
    is_unknown, after_damage = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    if count > 1:
        is_border[1:] = ~differing(logs.slice(1), logs.slice(0, count - 1), PARTITION_KEY)
        known: Values = logs["next_offset"]
        own: NDArray[np.int64] = known.fill_null(-1).to_numpy().astype(np.int64)
        ends[1:] = np.where(is_border[1:], own[:-1], -1)
        is_unknown[1:] = is_border[1:] & (own[:-1] < 0)
        is_whole: Values = pc.equal(logs["status"], pa.scalar(Status.OK.value))
        after_damage[1:] = is_border[1:] & ~is_whole.to_numpy().astype(np.bool_)[:-1]
        bases = logs["base_offset"].to_numpy()
        if (is_border & (bases < ends)).any():  # logs overlap: what is missing is what none of them has
            for first, end in _partition_ranges(is_border):
                ends[first + 1 : end] = np.maximum.accumulate(ends[first + 1 : end])
    return _Borders(logs, ends, is_border, is_unknown, after_damage)


def _overlapping_logs(borders: _Borders) -> list[dict[str, Any]]:
    bases: NDArray[np.int64] = borders.logs["base_offset"].to_numpy().astype(np.int64)
    places: Values = pa.array(np.flatnonzero(borders.is_border & (bases < borders.ends)))
    return [] if not len(places) else borders.logs.take(places).to_pylist()


def _partition_ranges(is_border: Flags) -> Iterator[tuple[int, int]]:
    """Where the rows of each partition begin and end."""
    starts = np.flatnonzero(~is_border)
    return zip(starts.tolist(), [*starts[1:].tolist(), len(is_border)], strict=True)


def _gap_rows(borders: _Borders) -> pa.Table:
    bases: NDArray[np.int64] = borders.logs["base_offset"].to_numpy().astype(np.int64)
    at: NDArray[np.int64] = np.flatnonzero(borders.is_border & ~borders.is_unknown & (bases > borders.ends))
    places: Values = pa.array(at)
    gaps = borders.logs.select([*PARTITION_KEY, "topic_id"]).take(places)
    columns = {"first_offset": borders.ends, "last_offset": bases - 1, "after_damage": borders.after_damage}
    for name, values in columns.items():
        gaps = gaps.append_column(name, pa.array(values[at]))
    return gaps.cast(_GAP_ROWS)


def _topics_of_rows(rows: pa.Table) -> Iterator[tuple[str, str]]:
    columns: Any = (rows["source"].to_pylist(), rows["topic"].to_pylist())
    return zip(*columns, strict=True)


def _distinct_topics(rows: pa.Table) -> list[tuple[str, str]]:
    return [*_topics_of_rows(rows.group_by(["source", "topic"], use_threads=False).aggregate([]))]


def explains_gaps(topic: str, policy: ConfigValue | None) -> bool:
    """Whether a topic is known to be compacted, whatever its logs lack."""
    return _judge_topic(topic, policy, False).explains


def _judge_topic(topic: str, policy: ConfigValue | None, is_lacking: bool) -> _Judgement:
    if policy is not None:
        says = f"cleanup.policy is {policy.value or 'empty'} ({policy.origin.value})"
        if _COMPACT in {word.strip() for word in policy.value.split(",")}:
            return _Judgement(Evidence.POLICY, says, True)
        if is_lacking:
            return _Judgement(Evidence.NONE, f"{says}, and logs of the topic lack records as after compaction", False)
        return _Judgement(Evidence.POLICY, f"{says}: retention deletes from the start alone", False)
    if topic in COMPACTED_BY_BROKERS:
        return _Judgement(Evidence.KAFKAS_OWN, "brokers compact this topic", True)
    if is_lacking:
        return _Judgement(Evidence.LACKING_WITHIN, "logs of the topic have fewer records than offsets", True)
    why = "the topic's logs have a record for each of their offsets, as without compaction"
    by = "neither by the cluster's metadata (--cluster-metadata) nor by --server-properties"
    return _Judgement(Evidence.NONE, f"cleanup.policy is known {by}, and {why}", False)


def _judge_gap(gap: Gap, names: Collection[str], *, is_damaged: bool) -> _Judgement | None:
    """What explains a gap of a topic whose gaps nothing explains as such."""
    if gap.evidence is not Evidence.POLICY and (files := _cleaners_logs_over(gap, names)):
        return _Judgement(Evidence.CLEANERS_FILES, f"files of the cleaner are there ({files[0]})", True)
    if is_damaged:
        return _Judgement(Evidence.DAMAGED_LOG, "the log before is damaged", True)
    return None


def _cleaners_logs_over(gap: Gap, names: Collection[str]) -> list[str]:
    """The names of logs that the cleaner has made, if they and those that it has replaced cover a gap. A log covers the
    offsets up to the next log, whatever its state. A log that a broker removes as it starts covers nothing by itself.
    """
    bases: dict[int, str] = {}
    put = put_in_place(names)
    for name in sorted(names):  # of a log and of one that the cleaner has made or replaced, the latter counts
        stem, dot, state = name.rpartition(".")
        is_cleaners = f"{dot}{state}" in _CLEANER_SUFFIXES
        is_removed = f"{dot}{state}" in (segment_files.CLEANED_SUFFIX, segment_files.SWAP_SUFFIX) and name not in put
        base = segment_files.parse_segment_log(stem if is_cleaners else name)
        if is_removed and stem not in names:
            if _begins_in_gap(stem, gap):
                return []  # a cleaner that is stopped leaves the logs that such a file was to replace
            continue
        if base is not None:
            bases[base] = name
    ordered = sorted(bases)
    ends = dict(zip(ordered, [*ordered[1:], segment_files.OFFSET_MAX], strict=False))
    inside = [base for base in ordered if base <= gap.last_offset and ends[base] > gap.first_offset]
    is_covered = bool(inside) and all(bases[base].endswith(_CLEANER_SUFFIXES) for base in inside)
    # A log of the gap's own offsets that is in its place has none of them: nothing has replaced it.
    names = [name for name in names if not _begins_in_gap(name, gap)]
    made = [log for base in inside if (log := _made_by_cleaner(bases[base], names)) is not None]
    return made if is_covered and inside[0] <= gap.first_offset else []


def _begins_in_gap(name: str, gap: Gap) -> bool:
    base = segment_files.parse_segment_log(name)
    return base is not None and gap.first_offset <= base <= gap.last_offset


def _made_by_cleaner(name: str, names: Collection[str]) -> str | None:
    """The name itself; if it is marked to be deleted, the name of the log that has replaced it, or None for none."""
    log = name.removesuffix(segment_files.DELETED_SUFFIX)
    return log if log == name or log in names else None


def _gap_of_row(row: Mapping[str, Any], of_topic: _Judgement) -> Gap:
    names = (*PARTITION_KEY, "topic_id", "first_offset", "last_offset")
    return Gap(**{name: row[name] for name in names}, evidence=of_topic.evidence, why=of_topic.why)


def _explain_by_topic(gaps: pa.Table, judgements: Mapping[tuple[str, str], _Judgement]) -> Iterator[_Explained]:
    offsets: Values = pc.add(pc.subtract(gaps["last_offset"], gaps["first_offset"]), 1)
    grouped = gaps.append_column("offsets", offsets).group_by(["source", "topic"], use_threads=False)
    sums = grouped.aggregate([([], "count_all"), ("partition", "count_distinct"), ("offsets", "sum")])
    for row in sums.to_pylist():
        topic = row["source"], row["topic"]
        yield *topic, judgements[topic], row["count_all"], row["partition_count_distinct"], row["offsets_sum"]


def _gaps_above_cleaner(gaps: pa.Table, directories: GapEvidence) -> Iterator[tuple[str, int]]:
    """`above_cleaner` of `FoundGaps`, of gaps of compacted topics. A partition without a line in the file says
    nothing.
    """
    cleaned: dict[Location, Mapping[TopicPartition, int]] = {}
    for row in gaps.group_by(list(PARTITION_KEY), use_threads=False).aggregate([("last_offset", "max")]).to_pylist():
        partition = TopicPartition(row["topic"], row["partition"])
        place = directories.places.get((row["source"], row["topic"], row["partition"]))
        if place is None:
            continue
        if place.parent not in cleaned:
            cleaned[place.parent] = {}
            with contextlib.suppress(CheckpointError, OSError):
                cleaned[place.parent] = read_offset_checkpoint(place.parent / CLEANER_CHECKPOINT) or {}
        offset = cleaned[place.parent].get(partition)
        if offset is not None and row["last_offset_max"] >= offset:
            yield as_text(place), offset


def _sum_explained_gaps(explained: Iterable[_Explained]) -> Iterator[ExplainedGaps]:
    """One object for all gaps of a topic that have one explanation."""
    sums: dict[tuple[str, str, Evidence], ExplainedGaps] = {}
    for source, topic, judgement, gaps, partitions, offsets in explained:
        key = source, topic, judgement.evidence
        before = sums.get(key) or ExplainedGaps(
            source=source, topic=topic, evidence=judgement.evidence, why=judgement.why, gaps=0, partitions=0, offsets=0
        )
        sums[key] = replace(
            before,
            gaps=before.gaps + gaps,
            partitions=before.partitions + partitions,
            offsets=before.offsets + offsets,
        )
    return iter(sums[key] for key in sorted(sums))


def _known_by_snapshots(gap: Gap, names: Collection[str], directories: GapEvidence) -> Iterator[GapKnownBy]:
    for offset in sorted(filter(None, map(segment_files.parse_snapshot, names))):
        if gap.first_offset < offset <= gap.last_offset + 1:
            entries = directories.producers_at(gap.partition_key, offset)
            last = np.empty(0, np.int64) if entries is None else entries["last_offset"]
            inside = last[(last >= gap.first_offset) & (last <= gap.last_offset)]
            if len(inside):
                name = segment_files.segment_file(offset, segment_files.SNAPSHOT_SUFFIX)
                yield GapKnownBy(who=name, says=f"says that a producer wrote offset {int(inside.max())}")
                return


def _with_known_by(gap: Gap, known: Iterable[GapKnownBy]) -> Gap:
    """A gap, with others that know its offsets."""
    known_by = (*known, *gap.known_by)
    is_known = bool(known_by) and gap.evidence is Evidence.NONE
    return replace(gap, known_by=known_by, evidence=Evidence.KNOWN if is_known else gap.evidence)


def _known_by_other_logs(gap: Gap, rows: Sequence[Mapping[str, Any]]) -> Iterator[GapKnownBy]:
    """What logs elsewhere know of a gap: other sources first, as these have the records. `rows` are `FACTS` of the
    partition's segments in any sources, with known ends.
    """
    by_source: dict[tuple[bool, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        is_recorded = row["status"] in ABSENT or row["source"] == gap.source
        is_other_topic = None not in (gap.topic_id, row["topic_id"]) and gap.topic_id != row["topic_id"]
        overlaps = row["base_offset"] <= gap.last_offset and row["next_offset"] > gap.first_offset
        if overlaps and not is_other_topic:
            by_source[is_recorded, row["source"]].append(row)
    for (is_recorded, source), of_source in sorted(by_source.items(), key=lambda item: item[0]):
        recorded = "the catalog" if source == gap.source else f"the catalog, of source {source}, where it is gone,"
        yield GapKnownBy(
            who=recorded if is_recorded else f"source {source}",
            records=_sum_if_known(_records_in_gap(gap, row) for row in of_source),
            log_bytes=_sum_if_known(row["log_bytes"] if _is_log_inside_gap(gap, row) else None for row in of_source),
        )


def _is_log_inside_gap(gap: Gap, row: Mapping[str, Any]) -> bool:
    return gap.first_offset <= row["base_offset"] and int(row["next_offset"]) <= gap.last_offset + 1


def _records_in_gap(gap: Gap, row: Mapping[str, Any]) -> int | None:
    """How many records of a log are in a gap; None where that is not known."""
    records: int | None = row["records"]
    if records is None or _is_log_inside_gap(gap, row):
        return records
    if records != row["next_offset"] - row["base_offset"]:
        return None
    return int(min(row["next_offset"], gap.last_offset + 1) - max(row["base_offset"], gap.first_offset))


def _sum_if_known(numbers: Iterable[int | None]) -> int | None:
    known = [*numbers]
    return None if None in known else sum(number for number in known if number is not None)


def with_logs_aside(
    finding: Finding, aside: LogsAside, directory: Location, first_offset: int, end_offset: int
) -> Finding:
    """A finding on offsets that are in no log of the partition's directory, with the logs that begin among them and
    that no broker loads.
    """
    remedy = aside.remedy(directory, first_offset, end_offset)
    return finding if remedy is None else replace(finding, consequence=f"{finding.consequence}; {remedy}")
