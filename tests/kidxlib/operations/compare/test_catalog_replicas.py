"""Replicas compared by what a catalog says of them: they are the same if and only if their batches are."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.operations.compare import catalog_replicas
from kidxlib.operations.compare.catalog_replica_verdict import LogPlace, ReplicaRelation, ReplicaVerdict
from kidxlib.operations.compare.catalog_replicas import compare_catalog_replicas
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.tables.memory_tables import MemoryTables
from tests.conftest import one_in
from tests.faults.trees import write_log
from tests.support.catalog import filled_rows
from tests.support.logs.batches import FILLER, Batch, encode
from tests.support.logs.guarded import whole


@dataclass(frozen=True, slots=True)
class _Laid:
    """A batch of a log, encoded."""

    batch: Batch
    last_offset: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.batch.last_offset_delta

    @property
    def data(self) -> bytes:
        return self.batch.encode(self.last_offset)


@dataclass(frozen=True, slots=True)
class _Copy:
    """What one source has of a partition.

    Attributes:
        segments: the batches of each.
        values: of columns in its row of `partitions`.
        of_segments: of columns in rows of `segments`, by the number of the segment.
        directory: where its logs are; None for nowhere.
    """

    segments: Sequence[Sequence[_Laid]]
    values: dict[str, Any]
    of_segments: dict[int, dict[str, Any]]
    directory: Path | None = None

    @property
    def batches(self) -> list[_Laid]:
        return [each for segment in self.segments for each in segment]


def _laid(batches: Iterable[Batch], base_offset: int = 0) -> list[_Laid]:
    """The batches, without a gap between them."""
    found, offset = [], base_offset
    for batch in batches:
        offset += batch.last_offset_delta + 1
        found.append(_Laid(batch, offset - 1))
    return found


def _cut(batches: Sequence[_Laid], lengths: Sequence[int]) -> list[list[_Laid]]:
    """Segments of so many batches each; the last one has the others."""
    ends = [0, *itertools.takewhile(lambda end: end < len(batches), itertools.accumulate(lengths)), len(batches)]
    return [list(batches[start:end]) for start, end in itertools.pairwise(ends)]


def _copy(batches: Sequence[_Laid], lengths: Sequence[int] = (), directory: Path | None = None, **values: Any) -> _Copy:
    return _Copy(_cut(batches, lengths), values, {}, directory)


def _tables(copies: Sequence[_Copy], **partition: Any) -> MemoryTables:
    """A catalog of copies, of one partition where they do not name another, in sources called a, b, and so on."""
    tables = MemoryTables("catalog")
    partitions, segments = [], []
    for source, copy in zip(string.ascii_letters, copies, strict=False):
        named = {"source": source, "topic": "t", "partition": 3, "topic_id": "id"}
        key = {name: copy.values.get(name, value) for name, value in named.items()}
        rows = [
            {**key, **_segment_row(copy, number), **copy.of_segments.get(number, {})}
            for number in range(len(copy.segments))
        ]
        ends = {"first_base_offset": rows[0]["base_offset"], "log_end_offset": rows[-1]["next_offset"]}
        partitions.append({**key, "present": True, **ends, **partition, **copy.values})
        segments += rows
    for table, found in ((PARTITIONS, partitions), (SEGMENTS, segments)):
        tables.append(table, filled_rows(table, found))
    return tables


def _segment_row(copy: _Copy, number: int) -> dict[str, Any]:
    """What a build finds of a segment."""
    batches = copy.segments[number]
    log, base_offset = b"".join(each.data for each in batches), batches[0].base_offset
    found = recover(whole(log), base_offset, RecoverOptions())
    facts, file = found.facts, {}
    if copy.directory is not None:
        path = write_log(copy.directory, base_offset, log)
        file = {"log_path": str(path), "log_mtime_ns": path.stat().st_mtime_ns}
    return {
        "base_offset": base_offset,
        "next_offset": facts.next_offset,
        "status": found.end.status.value,
        "records": facts.records,
        "log_bytes": len(log),
        "valid_bytes": facts.valid_bytes,
        "offsets_increase": facts.offsets_increase,
        "offset_digests": [each._asdict() for each in facts.offset_digests],
        "leader_epochs": [
            {name: int(each[name]) for name in ("epoch", "start_offset", "position")} for each in found.leader_epochs
        ],
        **file,
    }


def _verdict(*copies: _Copy, **partition: Any) -> ReplicaVerdict:
    """That of two copies."""
    [verdict] = compare_catalog_replicas(_tables(copies, **partition))
    return verdict


_BATCH: Final = st.builds(
    Batch,
    last_offset_delta=st.one_of(st.integers(0, 9), st.sampled_from([0, 300, 5_000])),
    body=st.integers(0, 40).map(lambda size: FILLER[:size]),
)
_LOG: Final = st.tuples(st.lists(_BATCH, min_size=1, max_size=60), st.sampled_from([0, 5, 2**40 + 77])).map(
    lambda drawn: _laid(*drawn)
)
_LENGTHS: Final = st.lists(st.integers(1, 30), max_size=6)


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[_Copy, _Copy]:
    """Two copies of a log, cut in different ways; of one some batches may be others, and both may start and end
    anywhere.
    """
    batches = [
        replace(each, batch=replace(each.batch, records=each.batch.last_offset_delta + 1)) for each in draw(_LOG)
    ]
    others = list(batches)
    for number in draw(st.lists(st.integers(0, len(batches) - 1), max_size=2)):
        others[number] = replace(others[number], batch=replace(others[number].batch, body=FILLER[77:90]))
    first, end = batches[0].base_offset, batches[-1].last_offset + 1
    middle = (first + end) // 2
    copies = []
    for log in (batches, others):
        copy = _copy(log, draw(_LENGTHS))
        dropped = draw(st.one_of(st.just(0), st.integers(0, len(copy.segments) - 1)))
        segments = copy.segments[dropped:]
        segments = segments[: draw(st.integers(1, len(segments)))] if draw(st.booleans()) else segments
        bounds = {
            "log_start_offset": draw(st.one_of(st.none(), st.integers(first, middle))),
            "high_watermark": draw(st.one_of(st.none(), st.integers(middle, end))),
        }
        copies.append(replace(copy, segments=segments, values=bounds))
    return copies[0], copies[1]


def _bounds(copy: _Copy) -> tuple[int, int]:
    first, end = copy.batches[0].base_offset, copy.batches[-1].last_offset + 1
    start, high_watermark = copy.values["log_start_offset"], copy.values["high_watermark"]
    return max(first, start or 0), end if high_watermark is None else min(end, high_watermark)


@one_in(4)
@given(_pairs())
def test_replicas_are_the_same_if_and_only_if_their_batches_are(pair: tuple[_Copy, _Copy]) -> None:
    """What is undecided may be either; where both hold the same batches at all, nothing is."""
    first = max(_bounds(copy)[0] for copy in pair)
    end = min(_bounds(copy)[1] for copy in pair)
    verdict = _verdict(*pair)
    if first >= end:
        assert verdict.verdict in (
            ReplicaRelation.NOT_COMPARABLE,
            ReplicaRelation.BEHIND,
            ReplicaRelation.LACKS,
            ReplicaRelation.SAME_UP_TO,
            ReplicaRelation.SAME,
        )
        assert not verdict.difference
        event("nothing in common")
        return
    held = [{(each.base_offset, each.data) for each in copy.batches} for copy in pair]
    differing = sorted(offset for offset, _ in held[0] ^ held[1] if first <= offset < end)
    event(f"{verdict.verdict}, {'differing' if differing else 'equal'}, undecided: {verdict.undecided_offsets > 0}")
    assert (verdict.first_offset, verdict.end_offset) == (first, end)
    if verdict.difference is not None:
        assert verdict.verdict in (ReplicaRelation.DIFFERS, ReplicaRelation.LACKS)
        inside = [
            offset
            for offset in differing
            if verdict.difference.first_offset <= offset <= verdict.difference.last_offset
        ]
        assert inside and len(differing) >= verdict.difference.ranges
        assert first <= verdict.difference.first_offset <= verdict.difference.last_offset < end
    else:
        assert not differing or verdict.undecided_offsets >= len(set(differing))
    if held[0] == held[1]:
        assert verdict.undecided_offsets == 0 and verdict.verdict in (
            ReplicaRelation.SAME,
            ReplicaRelation.SAME_UP_TO,
            ReplicaRelation.BEHIND,
        )
    if verdict.verdict is ReplicaRelation.SAME:
        assert not held[0] ^ held[1] or any(offset < first for offset, _ in held[0] ^ held[1])


def _records(count: int, body: bytes = b"", **fields: Any) -> Batch:
    return Batch(last_offset_delta=count - 1, records=count, body=body or FILLER[:30], **fields)


def _with(batches: Sequence[_Laid], number: int, **fields: Any) -> list[_Laid]:
    """The batches, one of them another."""
    found = list(batches)
    found[number] = replace(found[number], batch=replace(found[number].batch, **fields))
    return found


_SOUND: Final = _laid([_records(1 + number % 5) for number in range(400)])


def test_the_one_of_three_that_differs_is_named(tmp_path: Path) -> None:
    """Whichever it is; the first offset is where its batch is another, and both logs say where."""
    for odd in range(3):
        logs = [_with(_SOUND, 223, body=b"another") if number == odd else _SOUND for number in range(3)]
        copies = [
            _copy(log, [50 + 7 * number] * 9, tmp_path / str(odd) / "abc"[number]) for number, log in enumerate(logs)
        ]
        verdicts = {each.source: each for each in compare_catalog_replicas(_tables(copies))}
        agreeing = [source for source in "abc" if source != "abc"[odd]]
        assert {source: each.verdict for source, each in verdicts.items()} == {
            "abc"[odd]: ReplicaRelation.DIFFERS,
            agreeing[1]: ReplicaRelation.SAME,
        }
        found = verdicts["abc"[odd]]
        assert found.compared_with == agreeing[0] and found.agreeing == agreeing and found.has_majority
        assert found.difference is not None and found.difference.ranges == 1
        assert found.difference.offset == _SOUND[223].base_offset
        assert found.difference.place == _place(copies[odd], 223)
        assert found.difference.other_place == _place(copies["abc".index(agreeing[0])], 223)
        assert found.difference.last_offset - found.difference.first_offset < 32


def _place(copy: _Copy, number: int) -> LogPlace:
    """Where a batch of a copy is."""
    for segment in copy.segments:
        if number < len(segment):
            assert copy.directory is not None
            path = copy.directory / segment_file(segment[0].base_offset, LOG_SUFFIX)
            return LogPlace(log_path=str(path), position=sum(len(each.data) for each in segment[:number]))
        number -= len(segment)
    raise AssertionError


def test_of_two_that_differ_nobody_knows_which_is_right() -> None:
    found = _verdict(_copy(_SOUND), _copy(_with(_SOUND, 0, body=b"another")))
    assert found.verdict is ReplicaRelation.DIFFERS and found.agreeing == ["a"] and not found.has_majority


def test_a_batch_that_one_log_lacks_is_told_with_what_stands_in_its_place(tmp_path: Path) -> None:
    """A segment in the middle is gone: its batches are nowhere, and the logs go on with the next one."""
    whole_copy = _copy(_SOUND, [100, 100, 100], tmp_path / "a")
    lacking = _copy(_SOUND, [100, 100, 100], tmp_path / "b")
    lacking = replace(lacking, of_segments={1: {"status": "gone"}})
    found = _verdict(whole_copy, lacking)
    lacks = found.lacks
    assert found.verdict is ReplicaRelation.LACKS and found.difference is not None and lacks is not None
    assert (lacks.source, lacks.first_offset, lacks.last_offset) == (
        "b",
        _SOUND[100].base_offset,
        _SOUND[199].last_offset,
    )
    assert found.difference.offset == _SOUND[100].base_offset
    assert found.difference.other_place == _place(whole_copy, 100)
    assert found.difference.place in (None, _place(lacking, 200))


@pytest.mark.parametrize("change", ["touched", "grown", "removed"])
def test_a_log_that_has_changed_since_is_not_believed(tmp_path: Path, change: str) -> None:
    copies = [_copy(_SOUND, (), tmp_path / "a"), _copy(_with(_SOUND, 8, body=b"another"), (), tmp_path / "b")]
    tables = _tables(copies)
    path = Path(_place(copies[0], 0).log_path)
    if change == "removed":
        path.unlink()
    elif change == "touched":
        path.touch()
    else:
        path.write_bytes(path.read_bytes() + b"more")
    [found] = compare_catalog_replicas(tables)
    assert found.difference is not None and found.difference.offset is None and found.difference.note is not None
    assert str(path) in found.difference.note


def test_differences_are_looked_for_in_logs_up_to_a_number(tmp_path: Path) -> None:
    copies = [_copy(_SOUND, (), tmp_path / "a"), _copy(_with(_SOUND, 8, body=b"another"), (), tmp_path / "b")]
    [found] = compare_catalog_replicas(_tables(copies), walks=0)
    assert found.difference is not None and (found.difference.offset, found.difference.place) == (None, None)
    assert found.difference.note == "not looked for in the logs: it is not among the first 0"


def test_a_replica_that_ends_earlier_is_behind() -> None:
    found = _verdict(_copy(_SOUND, [90]), _copy(_SOUND[:-7], [60]))
    missing = _SOUND[-1].last_offset - _SOUND[-8].last_offset
    assert (found.source, found.verdict, found.behind_offsets) == ("b", ReplicaRelation.BEHIND, missing)
    assert found.undecided_offsets == 0 or found.reason is not None


def test_what_is_above_a_high_watermark_does_not_count() -> None:
    """A batch that was never committed is another on each broker, as after a change of leaders."""
    last = _SOUND[-1].base_offset
    found = _verdict(_copy(_SOUND), _copy(_with(_SOUND, -1, body=b"another")), high_watermark=last)
    assert found.verdict is ReplicaRelation.SAME_UP_TO and found.end_offset == last
    assert (found.compared_to or 0) <= last < found.log_end_offset
    assert 0 < found.undecided_offsets < last and "beyond log starts or high watermarks" in (found.reason or "")


def test_replicas_without_an_offset_in_common_are_not_comparable() -> None:
    found = _verdict(_copy(_SOUND[200:]), _copy(_SOUND[:100]))
    start, end = _SOUND[200].base_offset, _SOUND[99].last_offset + 1
    assert (found.source, found.verdict, found.first_offset) == ("b", ReplicaRelation.BEHIND, None)
    assert found.reason == (
        f"no offset in common: in source b the high watermark is {end}, in source a the log starts at {start}"
    )


def test_a_log_whose_end_is_not_committed_is_not_comparable() -> None:
    found = _verdict(_copy(_SOUND[200:]), _copy(_SOUND[200:], high_watermark=7))
    assert found.verdict is ReplicaRelation.NOT_COMPARABLE and "nothing is committed in source b" in (
        found.reason or ""
    )


def test_epochs_that_disagree_are_told() -> None:
    """Digests do not cover them. An epoch that began before the other log starts is the same."""
    epochs = [
        _laid([replace(each.batch, leader_epoch=4 + (n >= turn)) for n, each in enumerate(_SOUND)]) for turn in (90, 99)
    ]
    found = _verdict(_copy(epochs[0], [70, 70]), _copy(epochs[1], [95]))
    assert found.verdict is ReplicaRelation.EPOCHS_DISAGREE and found.difference is None and found.epochs is not None
    assert (found.epochs.offset, found.epochs.epoch, found.epochs.other_epoch) == (_SOUND[90].base_offset, 4, 5)
    assert _verdict(_copy(epochs[0], [70, 70]), _copy(epochs[0][80:], [5])).verdict is ReplicaRelation.SAME_UP_TO
    assert _verdict(_copy(epochs[0]), _copy(epochs[1][99:])).verdict is ReplicaRelation.SAME_UP_TO
    assert _verdict(_copy(epochs[0]), _copy(epochs[1][95:])).verdict is ReplicaRelation.EPOCHS_DISAGREE


def test_replicas_of_a_compacted_topic_are_compared_by_epochs_and_counts() -> None:
    """Each is cleaned by its own broker, so batches may be others, and first ones of an epoch may be lost."""
    epochs = _laid([replace(each.batch, leader_epoch=n // 100) for n, each in enumerate(_SOUND)])
    cleaned = [each for n, each in enumerate(epochs) if (n + 1) % 3]
    found = _verdict(_copy(epochs), _copy(cleaned), cleaner_offset=900)
    assert found.verdict is ReplicaRelation.NOT_COMPARABLE and found.compacted == "cleaner-offset-checkpoint names it"
    assert (found.records, found.other_records) == tuple(
        sum(each.batch.records for each in log) for log in (cleaned, epochs)
    )
    assert "each broker compacts its own log" in (found.reason or "")
    same_count = _verdict(_copy(epochs), _copy(_with(epochs, 8, body=b"another")), cleaner_offset=900)
    assert same_count.verdict is ReplicaRelation.NOT_COMPARABLE and same_count.difference is None
    assert same_count.reason == "each broker compacts its own log; both have the same number of records"
    wrong = _laid([replace(each.batch, leader_epoch=n // 45) for n, each in enumerate(_SOUND)])
    found = _verdict(_copy(epochs), _copy([each for n, each in enumerate(wrong) if (n + 1) % 3]), cleaner_offset=900)
    assert found.verdict is ReplicaRelation.EPOCHS_DISAGREE


def test_a_topic_is_compacted_if_policy_says_so_or_all_replicas_lack_offsets() -> None:
    cleaned = [[each for n, each in enumerate(_SOUND) if n % turn] for turn in (3, 4)]
    by_offsets = _verdict(*map(_copy, cleaned))
    assert by_offsets.compacted == "segments of all replicas lack offsets" and by_offsets.difference is None
    lacks_one = _verdict(_copy(_SOUND), _copy(_SOUND[:50] + _SOUND[51:]))
    assert lacks_one.compacted is None and lacks_one.verdict is ReplicaRelation.DIFFERS
    tables = _tables([_copy(_SOUND), _copy(cleaned[0])])
    [by_policy] = compare_catalog_replicas(tables, compacted=["t"])
    assert by_policy.compacted == "its policy says so"


def test_offsets_that_the_catalog_does_not_know_are_undecided(tmp_path: Path) -> None:
    """A segment that could not be read, or was read by an older release; and what follows damage in a log."""
    copies = [_copy(_SOUND, [100, 100, 100]), _copy(_SOUND, [100, 100, 100])]
    of_segment = sum(each.batch.records for each in _SOUND[100:200])
    unread = {"status": "unreadable", "offset_digests": None, "next_offset": None, "leader_epochs": None}
    for row in (unread, {"offset_digests": None}):
        found = _verdict(copies[0], replace(copies[1], of_segments={1: {**row, "records": None}}))
        assert found.verdict is ReplicaRelation.NOT_COMPARABLE and found.undecided_offsets == of_segment, found
        assert found.reason == f"{of_segment} offsets have no digest in the catalog, or their log is damaged there"
    damaged = replace(copies[1].segments[1][60], batch=replace(copies[1].segments[1][60].batch, crc_error=1))
    segments = [list(each) for each in copies[1].segments]
    segments[1][60] = damaged
    found = _verdict(copies[0], replace(copies[1], segments=segments))
    lost = sum(each.batch.records for each in _SOUND[160:200])
    assert found.verdict is ReplicaRelation.NOT_COMPARABLE and lost <= found.undecided_offsets < lost + 32


def test_only_partitions_of_one_topic_id_are_replicas() -> None:
    """A topic that was deleted and made again is another one, and so is one that is in a single source."""
    assert compare_catalog_replicas(_tables([_copy(_SOUND)])) == []
    again = _copy(_with(_SOUND, 0, body=b"another"), topic_id="another")
    assert compare_catalog_replicas(_tables([_copy(_SOUND), again])) == []
    assert compare_catalog_replicas(_tables([_copy(_SOUND), _copy(_SOUND, present=False)])) == []
    tables = _tables([_copy(_SOUND), _copy(_SOUND), again])
    assert [each.source for each in compare_catalog_replicas(tables)] == ["b"]
    assert compare_catalog_replicas(tables, sources=["a", "c"]) == []


@pytest.mark.parametrize("segments", [1, 9, 10**6])
def test_partitions_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch, segments: int) -> None:
    """However many segments are read at a time: of each partition its own replicas are compared."""
    monkeypatch.setattr(catalog_replicas, "_SEGMENTS_AT_ONCE", segments)
    places = [(topic, partition) for topic in "stuv" for partition in range(3)]
    copies = [
        _copy(
            _with(_SOUND, 9, body=b"another") if (topic, partition, source) == ("u", 1, "b") else _SOUND,
            [60] * partition,
            topic=topic,
            partition=partition,
            source=source,
        )
        for topic, partition in places
        for source in "ab"
    ]
    found = compare_catalog_replicas(_tables(copies))
    assert [(each.topic, each.partition) for each in found] == places
    assert [place for place, each in zip(places, found, strict=True) if each.verdict is not ReplicaRelation.SAME] == [
        ("u", 1)
    ]
    assert {each.records for each in found} == {sum(each.batch.records for each in _SOUND)}


def test_a_catalog_without_tables_has_no_replicas() -> None:
    assert compare_catalog_replicas(MemoryTables("nothing")) == []


def test_batches_of_encode_are_those_that_are_laid() -> None:
    """The logs above are what other tests' batches make."""
    log = b"".join(encode(0, [replace(each.batch, offset_step=each.batch.last_offset_delta + 1) for each in _SOUND]))
    assert log == b"".join(each.data for each in _SOUND)
