"""Audits with a budget of bytes: which partitions are read in which run, and what is said of those that are not."""

from __future__ import annotations

import json
import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from kidxlib.format import checkpoint_files
from tests.docs.log_dirs import put
from tests.jobs.archive import Archive, assert_refused
from tests.support.logs.batches import Batch
from tests.support.spark.jobs import Ended, kidx_here, rows

_DAY_0: Final = datetime(2026, 11, 1, tzinfo=UTC)
#: Records of each partition, one a batch: `e` is larger than all others together, `f` is empty.
_SIZES: Final = {"a": 3, "b": 2, "c": 1, "d": 2, "e": 30, "f": 0}


class _Audited(Archive):
    """A cataloged log dir, and its audits, one a day."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.days = 0

    def log(self, topic: str, base_offset: int = 0) -> Path:
        return self.log_dir / f"{topic}-0" / f"{base_offset:020d}.log"

    def verify(self, *options: object, day: int | None = None, code: int = 0) -> Ended:
        """The next audit, or the one of a day again."""
        self.days += day is None
        now = _day(self.days if day is None else day)
        source = ("--source", f"it={self.log_dir}", "--catalog", str(self.catalog))
        ended = kidx_here("verify", *source, "--now", now, *map(str, options))
        assert ended.code == code, ended.err or ended.out
        return ended

    def recorded(self) -> dict[int, set[str]]:
        """Of which topics each audit has recorded something, by day."""
        found: dict[int, set[str]] = {}
        for row in rows(self.catalog, "SELECT DISTINCT topic, audited_at FROM findings"):
            found.setdefault((row["audited_at"].astimezone(UTC) - _DAY_0).days, set()).add(row["topic"])
        return found


@pytest.fixture
def archive(tmp_path: Path) -> _Audited:
    archive = _Audited(tmp_path)
    for topic, records in _SIZES.items():
        put(archive.log_dir / f"{topic}-0", 0, [Batch() for _ in range(records)])
    # Two logs more, so that one may be missing between others, and at the end.
    put(archive.log_dir / "a-0", 3, [Batch()])
    put(archive.log_dir / "a-0", 4, [Batch()])
    assert archive.build().code == 0
    return archive


def _day(number: int) -> str:
    return (_DAY_0 + timedelta(days=number)).isoformat()


def _left_out(ended: Ended) -> dict[str, str | None]:
    return {each["topic"]: each["audited_at"] for each in ended.json["not_audited"]}


def test_a_budget_reads_all_partitions_in_turn_the_oldest_audit_first(archive: _Audited) -> None:
    """By the catalog's records: each once before any twice, those of the oldest audit first, and never more bytes than
    the budget but of one partition that is larger alone. Then the cycle begins anew.
    """
    size = {topic: sum(path.stat().st_size for path in archive.log(topic).parent.glob("*.log")) for topic in _SIZES}
    budget = size["a"] + size["b"]
    last: dict[str, int] = {}
    for _ in range(5):
        ended = archive.verify("--max-bytes", budget, "--json")
        day, left = archive.days, _left_out(ended)
        recorded = archive.recorded()
        read = recorded[day]
        assert read == _SIZES.keys() - left.keys() and "f" in read, "what has no bytes costs none"
        with_bytes = read - {"f"}
        assert sum(size[topic] for topic in with_bytes) <= budget or with_bytes == {"e"}
        assert max(last.get(topic, 0) for topic in with_bytes) <= min(last.get(topic, 0) for topic in left)
        expected = {
            topic: (_DAY_0 + timedelta(days=last[topic])).isoformat() if topic in last else None for topic in left
        }
        assert left == expected
        last |= dict.fromkeys(read, day)
        times = Counter(topic for topics in recorded.values() for topic in topics - {"f"})
        assert max(times.values()) - min(times[topic] for topic in _SIZES if topic != "f") <= 1
    assert [sorted(recorded[day] - {"f"}) for day in (1, 2, 3)] == [["a", "b"], ["c", "d"], ["e"]]


def test_what_is_left_out_stands_beside_the_result(archive: _Audited, tmp_path: Path) -> None:
    """On screen, in the line at the end and in metrics: how much, and since when. Without a budget, nothing."""
    whole = archive.verify().out
    assert "; unchanged since they were last read in full: 0 logs\n" in whole and "not audited" not in whole
    archive.verify("--max-bytes", 1)
    audit = ("--source", archive.log_dir, "--catalog", archive.catalog)
    assert_refused(kidx_here("verify", archive.log_dir, "--max-bytes", "1"), "--max-bytes: only for an audit with")
    assert_refused(kidx_here("verify", *audit, "--max-bytes", "0"), "--max-bytes 0: no log would be read;")
    tiering = kidx_here("verify", *audit, "--max-bytes", "1", "--require-tiering")
    assert_refused(tiering, "--max-bytes and --require-tiering: give one of them; a part says nothing")
    metrics, line = tmp_path / "kidx.prom", tmp_path / "line.json"
    shown = archive.verify("--max-bytes", 1, "--metrics-file", metrics, "--json-line", line).out
    [said] = [each for each in shown.splitlines() if each.startswith("read: ")]
    assert "(partitions after a clean stop: 0, after an unclean one: 2; not looked at: 4)" in shown
    left = json.loads(line.read_text())["counts"]
    assert said.startswith("read: 2 logs, ") and (
        "; unchanged since they were last read in full: 2 logs; not audited this time: 4 partitions, " in said
        and said.endswith("; the oldest was last audited on 2026-11-02T00:00:00Z")
    ), said
    sizes = {topic: sum(path.stat().st_size for path in archive.log(topic).parent.glob("*.log")) for topic in _SIZES}
    assert {name: left[name] for name in left if "audited" in name} == {
        "partitions_not_audited": 4,
        "partitions_never_audited": 0,
        "segments_not_audited": 6,
        "bytes_not_audited": sum(sizes.values()) - sizes["b"],
    }
    assert (left["partitions"], left["segments"], left["logs_unchanged"]) == (2, 2, 2)
    assert 'kidx_run_count{job="verify_index",what="partitions_not_audited"} 4.0' in metrics.read_text()


def test_changed_logs_come_first_of_one_audit_and_the_same_time_reads_the_same(archive: _Audited) -> None:
    """Of partitions of one audit those with a changed, new or lost log come first; none of these passes by an older
    one. A run that was stopped after it was recorded reads the same again, and loses nothing.
    """
    archive.verify()
    os.utime(archive.log("d"), ns=(1, 1))
    archive.log("a", 3).unlink()
    first = archive.verify("--max-bytes", 1, "--json", code=3)
    assert first.json["logs_unchanged"] == 3 and archive.recorded()[2] == {"a", "f"}
    again = archive.verify("--max-bytes", 1, "--json", day=2, code=3)
    assert again.json["audit_id"] == first.json["audit_id"] and archive.recorded()[2] == {"a", "f"}
    second = archive.verify("--max-bytes", 1, "--json", code=3)
    assert second.json["logs_unchanged"] == 1 and archive.recorded()[3] == {"d", "f"}
    os.utime(archive.log("d"), ns=(2, 2))
    archive.verify("--max-bytes", 1, code=3)
    assert archive.recorded()[4] == {"b", "f"}


#: What is lost of partition `a`, or wrong in the log dir: files moved away, files written, and what is said of it.
_LACKS: Final[tuple[tuple[tuple[str, ...], dict[str, str], tuple[str, ...]], ...]] = (
    (
        (f"kafka-logs/a-0/{3:020d}.log", f"index/a-0/{3:020d}.index", f"index/a-0/{0:020d}.index"),
        {
            checkpoint_files.HIGH_WATERMARK_CHECKPOINT: "0\n1\na 0 9\n",
            f"a-0/{checkpoint_files.LEADER_EPOCH_CHECKPOINT}": "nothing\n",
        },
        (
            "broken: a-0: gap: offsets 3 to 3 are in no log (1 offset)",
            "broken: a-0 0 .index: missing: no such file",
            "broken: a-0 4 .log: ends-below-high-watermark: the log ends at offset 5, replication-offset-checkpoint",
            "a-0/leader-epoch-checkpoint: ",
        ),
    ),
    (
        (f"kafka-logs/a-0/{4:020d}.log",),
        {checkpoint_files.RECOVERY_POINT_CHECKPOINT: "nothing\n"},
        ("broken: a-0 4 .log: missing: its .index is there, its log is not", "recovery-point-offset-checkpoint: "),
    ),
    (
        (),
        {checkpoint_files.RECOVERY_POINT_CHECKPOINT: "0\n1\nz 0 9\n"},
        ("recovery-point-offset-checkpoint names it",),
    ),
)


def test_what_is_missing_is_found_where_no_log_is_read(archive: _Audited) -> None:
    """It exits with 3, and what the audit before has recorded of the partition stays the last word on it."""
    archive.verify()
    archive.verify("--topics", "a")  # so that it is the last in turn
    root = archive.log_dir.parent
    for moved, written, says in _LACKS:
        for name in moved:
            (root / name).rename(root / name.replace("/", "-"))
        for name, text in written.items():
            (archive.log_dir / name).write_text(text)
        ended = archive.verify("--max-bytes", 1, day=3, code=3)
        assert "a" not in archive.recorded()[3]
        assert [each for each in says if each not in ended.out] == [], ended.out
        for name in moved:
            (root / name.replace("/", "-")).rename(root / name)
        for name in written:
            (archive.log_dir / name).unlink()
    archive.verify("--max-bytes", 1, day=3)


def test_damage_that_an_earlier_audit_found_counts_until_it_is_mended(archive: _Audited) -> None:
    """A partition that is left out is not well because nobody looked: what was found there is told, and exit 3, until
    the file is another, or what it has is accepted.
    """
    index = archive.index_dir / "a-0" / f"{0:020d}.index"
    sound = index.read_bytes()
    index.write_bytes(b"\xff" * 8)
    archive.verify("--topics", "[abc]", code=3)
    ended = archive.verify("--max-bytes", 1, code=3)
    assert archive.recorded()[2] == {"d", "f"}
    assert "; with 1 finding of earlier audits, of files that are as they were" in ended.out
    assert "broken: a-0 0 .index: " in ended.out
    accept = ("--source", "it", "--segment", "a-0/0", "--reason", "known", "--apply")
    assert kidx_here("accept", "--catalog", archive.catalog, *accept).code == 0
    assert "accepted: 1 finding, not counted above" in archive.verify("--max-bytes", 1).out
    index.write_bytes(sound)
    assert "of earlier audits" not in archive.verify("--max-bytes", 1).out
    checkpoint = archive.log_dir / checkpoint_files.LOG_START_OFFSET_CHECKPOINT
    checkpoint.write_text("0\n1\nc 0 9\n")
    archive.verify("--topics", "c", code=3)
    checkpoint.unlink()
    assert "of earlier audits" not in archive.verify("--max-bytes", 1).out, "what a checkpoint says is read each time"
