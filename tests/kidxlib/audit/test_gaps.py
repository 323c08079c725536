"""Gaps between logs: which there are, what explains them, and who knows the offsets."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kidxlib.audit.gaps import FACTS, Evidence, FoundGaps, GapEvidence, gaps_in
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format import segment_files
from kidxlib.log.metadata_image import ConfigOrigin, ConfigValue
from kidxlib.storage.logs_aside import LogsAside
from kidxlib.terminal.run_summary import gap_lines


def _log(base: int, end: int | None, **other: Any) -> dict[str, Any]:
    """A segment of `t-0` with a record for each offset and ten bytes for each record, if nothing else is said."""
    count = 0 if end is None else end - base
    facts = {"source": "a", "topic": "t", "partition": 0, "topic_id": None, "status": "ok"}
    return {**facts, "base_offset": base, "next_offset": end, "records": count, "log_bytes": 10 * count, **other}


def _rows(*logs: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([*logs], SEGMENTS.schema(FACTS))


@dataclass(frozen=True)
class _Case:
    """Logs of one topic, and the one gap that is found.

    Attributes:
        policy: `cleanup.policy` by the metadata.
        files: names of files in the directory of each partition.
        expected: evidence, first and last offset and whether it is lost; None for no gap.
    """

    name: str
    logs: tuple[dict[str, Any], ...]
    expected: tuple[Evidence, int, int, bool] | None
    policy: str | None = None
    topic: str = "t"
    files: tuple[str, ...] = field(default=())


def _of_logs(*logs: dict[str, Any]) -> FoundGaps:
    """The gaps where nothing but the logs tells."""
    return gaps_in(_rows(*logs), _nobody_knows, GapEvidence())


def _nobody_knows(_source: str, _topic: str) -> None:
    """The policy of a topic whose cluster's metadata is not known."""


_HOLE = (_log(0, 10), _log(25, 30))
_THINNED = (_log(0, 10, records=4), _log(25, 30))


def _write_log(path: Path) -> None:
    """A file whose first batch has the offset of its name."""
    offset = re.search("[0-9]{20}", path.name)
    path.write_bytes(int(offset[0] if offset else 0).to_bytes(8, "big"))


def _name(base: int, suffix: str) -> str:
    return segment_files.segment_file(base, suffix)


_CASES = (
    _Case("none", (_log(10, 20), _log(20, 20)), None),
    _Case("an empty log before the next", (_log(10, 10), _log(20, 30)), (Evidence.NONE, 10, 19, True)),
    _Case("nothing explains it", _HOLE, (Evidence.NONE, 10, 24, True)),
    _Case("the policy forbids it", _HOLE, (Evidence.POLICY, 10, 24, True), policy="delete"),
    _Case("the policy of neither kind forbids it", _HOLE, (Evidence.POLICY, 10, 24, True), policy=""),
    _Case("the policy explains it", _HOLE, (Evidence.POLICY, 10, 24, False), policy="compact"),
    _Case("both policies", _HOLE, (Evidence.POLICY, 10, 24, False), policy="compact, delete"),
    _Case("delete, and thinned out", _THINNED, (Evidence.NONE, 10, 24, True), policy="delete"),
    _Case("thinned out", _THINNED, (Evidence.LACKING_WITHIN, 10, 24, False)),
    _Case(
        "thinned out in another partition",
        (*_HOLE, _log(0, 10, partition=1, records=3)),
        (Evidence.LACKING_WITHIN, 10, 24, False),
    ),
    _Case("thinned out, another topic", (*_HOLE, _log(0, 9, topic="u", records=3)), (Evidence.NONE, 10, 24, True)),
    _Case("thinned out, another source", (*_HOLE, _log(0, 9, source="b", records=3)), (Evidence.NONE, 10, 24, True)),
    _Case("wrappers hide it", (_log(0, 10, records=None), _log(25, 30)), (Evidence.NONE, 10, 24, True)),
    _Case(
        "a damaged log that lacks records is no evidence",
        (_log(0, 9, records=3, status="truncated"), _log(9, 10), _log(25, 30)),
        (Evidence.NONE, 10, 24, True),
    ),
    _Case("offsets", _HOLE, (Evidence.KAFKAS_OWN, 10, 24, False), topic="__consumer_offsets"),
    _Case("transactions", _HOLE, (Evidence.KAFKAS_OWN, 10, 24, False), topic="__transaction_state"),
    _Case("share groups", _HOLE, (Evidence.NONE, 10, 24, True), topic="__share_group_state"),
    _Case("remote log metadata", _HOLE, (Evidence.NONE, 10, 24, True), topic="__remote_log_metadata"),
    _Case("metadata wins over the name", _HOLE, (Evidence.POLICY, 10, 24, True), "delete", "__consumer_offsets"),
    _Case(
        "replaced by the cleaner",
        _HOLE,
        (Evidence.CLEANERS_FILES, 10, 24, False),
        files=(_name(0, ".log"), _name(0, ".log.deleted"), _name(12, ".log.deleted"), _name(25, ".log")),
    ),
    _Case(
        "half of it replaced",
        _HOLE,
        (Evidence.KNOWN, 10, 24, True),
        files=(_name(0, ".log"), _name(12, ".log.deleted"), _name(25, ".log")),
    ),
    _Case(
        "marked to be deleted, and nothing of the cleaner",
        _HOLE,
        (Evidence.KNOWN, 10, 24, True),
        files=(_name(0, ".log"), _name(10, ".log.deleted"), _name(25, ".log")),
    ),
    _Case(
        "about to be swapped in",
        _HOLE,
        (Evidence.CLEANERS_FILES, 10, 24, False),
        files=(_name(0, ".log.swap"), _name(25, ".log")),
    ),
    _Case(
        "a start removes what begins there",
        _HOLE,
        (Evidence.KNOWN, 10, 24, True),
        files=(_name(0, ".log"), _name(0, ".log.cleaned"), _name(10, ".log.swap"), _name(25, ".log")),
    ),
    _Case(
        "an index that is marked covers nothing",
        _HOLE,
        (Evidence.NONE, 10, 24, True),
        files=(_name(0, ".log"), _name(0, ".index.deleted"), _name(25, ".log")),
    ),
    _Case(
        "after damage",
        (_log(0, 7, status="truncated"), _log(25, 30)),
        (Evidence.DAMAGED_LOG, 7, 24, False),
    ),
    _Case("a log that overlaps it", (_log(0, 28), _log(5, 10), _log(25, 30)), None),
    _Case("the largest end counts", (_log(0, 12), _log(5, 10), _log(25, 30)), (Evidence.NONE, 12, 24, True)),
    _Case("absent logs are none", (*_HOLE, _log(10, 25, status="gone")), (Evidence.NONE, 10, 24, True)),
)


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_each_gap_has_its_evidence(case: _Case, tmp_path: Path) -> None:
    """Of the first kind that says anything; only what nothing explains is lost."""
    for name in case.files:
        _write_log(tmp_path / name)
    logs = [{**log, "topic": case.topic if log["topic"] == "t" else log["topic"]} for log in case.logs]
    policy = None if case.policy is None else ConfigValue(case.policy, ConfigOrigin.TOPIC)
    found = gaps_in(_rows(*logs), lambda source, topic: policy, GapEvidence({("a", case.topic, 0): tmp_path}))
    if case.expected is None:
        assert not found.lost and not found.explained
        return
    evidence, first, last, is_lost = case.expected
    if is_lost:
        [gap] = found.lost
        assert (gap.evidence, gap.first_offset, gap.last_offset) == (evidence, first, last)
        assert (gap.reason, found.explained) == ("gap-unexplained" if evidence is Evidence.NONE else "gap", ())
    else:
        [of_topic] = found.explained
        counts = of_topic.gaps, of_topic.partitions, of_topic.offsets
        assert (of_topic.evidence, counts, found.lost) == (evidence, (1, 1, last - first + 1), ())


def test_what_was_not_looked_at_is_counted() -> None:
    """Beside a log whose end is not known nobody can see a gap; and of how many places none was found is said."""
    found = _of_logs(_log(0, None, status="unreadable"), _log(25, 30), _log(30, 40), _log(0, 5, partition=1))
    assert found == FoundGaps(borders=2, unknown_borders=1)
    assert _of_logs() == FoundGaps()


@pytest.mark.parametrize(
    ("elsewhere", "said"),
    [
        ([_log(5, 15, source="b"), _log(15, 40, source="b")], ["source b has 15 records of them"]),
        (
            [_log(10, 20, source="b"), _log(20, 25, source="b")],
            ["source b has 15 records of them in 150 bytes"],
        ),
        ([_log(5, 15, source="b", records=7)], ["source b has an unknown number of records of them"]),
        ([_log(10, 25, status="gone", records=9)], ["the catalog has 9 records of them in 150 bytes"]),
        ([_log(25, 30, source="b"), _log(0, 10, source="b"), _log(10, 25, source="b", topic_id="other")], []),
        ([_log(10, 25, source="b", partition=1), _log(10, 25, source="b", topic="u")], []),
    ],
)
def test_who_knows_the_offsets_is_named_with_what_it_has(elsewhere: list[dict[str, Any]], said: list[str]) -> None:
    """Records where they can be counted, and bytes of logs that are wholly in the gap; never of another topic."""
    gaps = _of_logs(_log(0, 10, topic_id="id"), _log(25, 30, topic_id="id"))
    [gap] = gaps.with_known(_rows(*elsewhere)).lost
    assert [each.in_words for each in gap.known_by] == said
    assert gap.evidence is (Evidence.KNOWN if said else Evidence.NONE)


@dataclass(frozen=True)
class _Aside:
    """A log of the gap `t-0/10-24` that no broker loads as one of `t-0`.

    Attributes:
        path: in the log dir.
        becomes: what a broker that starts does with it; None where it is none of the gap.
    """

    path: str
    becomes: str | None
    content: bytes = (10).to_bytes(8, "big")


_ASIDES = (
    _Aside(f"t-0/{_name(10, '.log.deleted')}", "removes it"),
    _Aside(f"t-0/{_name(12, '.log.deleted')}", "removes it", (12).to_bytes(8, "big")),
    _Aside(f"t-0/{_name(10, '.log.bak')}", "does not load it"),
    _Aside(f"t-0/old-{_name(10, '.log')}", "does not load it"),
    _Aside(f"t-0/sub/{_name(10, '.log')}", "does not load it"),
    _Aside(_name(10, ".log"), "does not load it"),
    _Aside(_name(10, ".log.deleted"), "removes it"),
    _Aside(f"other/u-3/{_name(10, '.log')}", "loads it as a log of u-3"),
    _Aside(f"t-0/{_name(10, '.log.deleted')}", None, b""),
    _Aside(f"t-0/{_name(10, '.log.bak')}", None, (99).to_bytes(8, "big")),
    _Aside(f"t-0/{_name(5, '.log.deleted')}", None, (5).to_bytes(8, "big")),
    _Aside(f"t-0/{_name(25, '.log.deleted')}", None, (25).to_bytes(8, "big")),
)


@pytest.mark.parametrize("case", _ASIDES, ids=lambda case: f"{case.path}, {len(case.content)}")
def test_a_log_of_a_gap_that_no_broker_loads_is_named(case: _Aside, tmp_path: Path) -> None:
    """With where it belongs, and what the broker does with it as it starts: perhaps it is the only copy."""
    for name in ("t-0", "other/u-3"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / case.path).parent.mkdir(exist_ok=True)
    (tmp_path / case.path).write_bytes(case.content)
    of_other = {"topic": "u", "partition": 3}
    intruder = [_log(10, 25, **of_other)] if "u-3" in case.path else []
    rows = _rows(*_HOLE, _log(0, 20, **of_other), *intruder)
    places = {("a", "t", 0): tmp_path / "t-0", ("a", "u", 3): tmp_path / "other" / "u-3"}
    [gap] = gaps_in(rows, _nobody_knows, GapEvidence(places)).lost
    if case.path.startswith("t-0"):  # unless a cleaner was at work: then a broker has what has replaced it
        _write_log(tmp_path / "t-0" / _name(70, ".log.swap"))
        assert all(each.path.parent != tmp_path / "t-0" for each in LogsAside().logs(tmp_path / "t-0", 10, 25))
    if case.becomes is None:
        assert not gap.aside and gap.consequence.endswith("look for the log on other replicas and copies")
        return
    [aside] = gap.aside
    name = _name(aside.base_offset, ".log")
    assert (aside.path, aside.target) == (tmp_path / case.path, tmp_path / "t-0" / name)
    assert gap.evidence is Evidence.KNOWN
    look = ": see by kidx dump --print-data-log whether its records are those of t-0; then"
    assert gap.consequence.endswith(
        f"{aside.path} begins there{':' if aside.path.parent.name == 't-0' else look} move it to {aside.target}, with "
        f"the other files of that offset, before the broker starts, which {case.becomes}"
    )


def test_no_log_is_told_to_take_the_place_of_another_one(tmp_path: Path) -> None:
    """Two logs of one offset: the one that has all records is to be found first. A file that is there is kept."""
    partition, log = tmp_path / "t-0", tmp_path / "t-0" / _name(10, ".log")
    partition.mkdir()
    deleted, loose = partition / _name(10, ".log.deleted"), tmp_path / _name(10, ".log")
    for path in (deleted, loose):
        _write_log(path)
    told = LogsAside().remedy(partition, 10, 25)
    assert told is not None
    assert told.startswith(f"{deleted} and {loose} begin there: see by kidx dump which one has all records, and move")
    loose.unlink()
    log.touch()
    told = LogsAside().remedy(partition, 10, 25)
    assert told is not None and f"move it to {log}, with the other files of that offset, in the place of the" in told


def test_a_log_with_0_bytes_beside_an_index_with_entries_is_named(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / _name(10, ".log")).touch()
    (partition / _name(10, ".index")).write_bytes(bytes([0, 0, 0, 5, 0, 0, 0, 9] * 3) + bytes(80))
    rows = _rows(_log(0, 10), _log(10, 10, records=0), _log(25, 40))
    [gap] = gaps_in(rows, _nobody_knows, GapEvidence({("a", "t", 0): partition})).lost
    assert f"{_name(10, '.log')} is there with 0 bytes, beside an .index of 3 entries" in gap.consequence


@pytest.mark.parametrize(
    ("checkpoint", "told"), [("t 0 10", True), ("t 0 24", True), ("t 0 25", False), ("u 0 10", False)]
)
def test_a_gap_that_the_cleaner_has_not_come_to_is_left_open(tmp_path: Path, checkpoint: str, told: bool) -> None:
    """A replica copies such a gap, and a broker killed as it cleans leaves it: so it is no loss for sure."""
    (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n1\n{checkpoint}\n")
    compact = ConfigValue("compact", ConfigOrigin.TOPIC)
    places = GapEvidence({("a", "t", 0): tmp_path / "t-0"})
    found = gaps_in(_rows(_log(0, 10), _log(25, 40)), lambda source, topic: compact, places)
    assert not found.lost and found.above_cleaner == ((str(tmp_path / "t-0"), int(checkpoint[4:])),) * told
    assert [line.split(": whether")[0] for line in gap_lines(found, many_sources=False)] == [
        f"not known: {tmp_path / 't-0'}"
    ] * told
