"""What Kafka's own classes leave of healthy partitions, however they are stopped: an audit calls no file broken."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from kidxlib.audit.finding import Verdict
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from kidxlib.records.reader import Record
from tests.support.audits import audited
from tests.support.kafka.classes import Kafka
from tests.support.logs.batches import Batch, control
from tests.support.logs.encoded import WAYS, batch_v2, message

_DAY_MS: Final = 24 * 60 * 60 * 1000
_NOW_MS: Final = 1_700_000_000_000
_TRANSACTIONAL: Final = 16
#: So small that the cleaner does not merge two segments, of which it would remove one's snapshot.
_SETTINGS: Final = {"internal.segment.bytes": "640", "retention.ms": "-1"}


@dataclass(frozen=True, slots=True)
class Live:
    """A partition that Kafka's `UnifiedLog` writes, as a follower does: batches come with offsets and epochs."""

    kafka: Kafka
    log: Any
    directory: Path

    @property
    def _jvm(self) -> Any:
        return self.kafka.gateway.jvm

    def append(self, data: bytes, epoch: int = 0) -> None:
        self.log.appendAsFollower(self.kafka.records.readable(data), epoch)
        self.log.updateHighWatermark(self.log.logEndOffset())

    def write(self, offset: int, keys: str, epoch: int = 0, **fields: Any) -> int:
        """One batch with a record for each letter, its key; the offset after it."""
        inside = [Record(offset + n, _NOW_MS + offset + n, key.encode(), bytes(30)) for n, key in enumerate(keys)]
        self.append(batch_v2(inside, *WAYS["none"], leader_epoch=epoch, **fields), epoch)
        return offset + len(keys)

    def mark(self, offset: int, producer_id: int, producer_epoch: int = 0, *, commit: bool = True) -> int:
        """The marker of a producer's transaction."""
        fields = control(b"\0\0\0\1" if commit else b"\0\0\0\0", bytes(5) + b"\7")
        fields |= {"producer_id": producer_id, "producer_epoch": producer_epoch}
        self.append(Batch(timestamp=_NOW_MS + offset, leader_epoch=0, base_timestamp=_NOW_MS, **fields).encode(offset))
        return offset + 1

    def delete_records(self, offset: int) -> None:
        reason = self._jvm.org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason
        assert self.log.maybeIncrementLogStartOffset(offset, reason.ClientRecordDeletion)

    def clean(self) -> None:
        """Let Kafka's log cleaner pass over all but the active segment, long after markers may go."""
        internals, functions = self._jvm.org.apache.kafka.storage.internals, self.kafka.functions
        clock = self._jvm.org.apache.kafka.common.utils.Time.SYSTEM
        throttler = internals.utils.Throttler(1e12, 300, "it", "bytes", clock)
        nothing = functions.consumer(functions.method("java.lang.Object", "hashCode", self._jvm.java.lang.Integer.TYPE))
        cleaner = internals.log.Cleaner(
            0, internals.log.SkimpyOffsetMap(65536), 65536, 65536, 0.9, throttler, clock, nothing
        )
        segments = [segment.baseOffset() for segment in self.kafka.segments_of(self.log)]
        # A marker gets its horizon, and goes once that is past: of the first segment, lest two are merged.
        for end, days in ((segments[-1], 0), (segments[1], 10)):
            later = clock.milliseconds() + days * _DAY_MS
            cleaner.doClean(internals.log.LogToClean(self.log, segments[0], end, False), later)

    def forget_producers(self) -> None:
        self.log.removeExpiredProducers(self._jvm.java.lang.System.currentTimeMillis() + 2 * _DAY_MS)


def _deleted_records(live: Live) -> None:
    """The log start comes to lie amid an epoch, in the first of two segments."""
    end = live.write(live.write(0, "abcdefghij"), "klm", epoch=1)
    live.write(end, "nopq", epoch=3)
    live.log.roll()
    live.write(end + 4, "rst", epoch=4)
    live.delete_records(end + 2)


def _first_logs_deleted(live: Live) -> None:
    """Their files are gone by now, which Kafka keeps a minute under other names."""
    end = live.write(0, "abcdefghij")
    live.log.roll()
    end = live.write(end, "klm", epoch=1)
    live.log.roll()
    live.write(end, "nopq", epoch=1)
    live.delete_records(end)
    assert live.log.deleteOldSegments() == 2
    for path in live.directory.glob("*.deleted"):
        path.unlink()


def _epochs_go_back(live: Live) -> None:
    """As where ZooKeeper lost the topic, and it was made again over its log."""
    end = live.write(live.write(0, "abc"), "defg", epoch=2)
    live.write(end, "hijk", epoch=0)


def _epochs_go_back_behind_a_roll(live: Live) -> None:
    end = live.write(live.write(0, "abc"), "defg", epoch=2)
    live.log.roll()
    live.write(live.write(end, "hijk", epoch=0), "lm", epoch=1)


def _cleaned_producers(live: Live) -> None:
    """What two idle producers wrote is written again by another, and their batches go."""
    end = live.write(0, "abcd", producer_id=7, producer_epoch=0, base_sequence=0)
    end = live.write(live.write(end, "efgh", producer_id=8, producer_epoch=0, base_sequence=0), "y")
    live.log.roll()
    live.forget_producers()
    live.write(end, "abcdefgh", producer_id=9, producer_epoch=0, base_sequence=0)
    live.log.roll()
    live.clean()


def _cleaned_transactions(live: Live) -> None:
    """With markers that go, of producers that had other epochs by their markers."""
    fields = {"producer_epoch": 0, "base_sequence": 0, "attributes": _TRANSACTIONAL}
    end = live.mark(live.write(0, "abcd", producer_id=7, **fields), 7, 1)
    end = live.mark(live.write(end, "efgh", producer_id=8, **fields), 8, commit=False)
    live.log.roll()
    live.forget_producers()
    end = live.mark(live.write(end, "abcdefgh", producer_id=9, **fields), 9)
    live.log.roll()
    live.write(end, "z")
    live.clean()


def _came_back(live: Live) -> None:
    """A producer that was forgotten, with its coordinator's epoch, is amid a transaction as a segment is rolled."""
    fields = {"producer_id": 7, "producer_epoch": 0, "attributes": _TRANSACTIONAL}
    end = live.mark(live.write(0, "abcd", base_sequence=0, **fields), 7)
    live.forget_producers()
    end = live.write(end, "efgh", base_sequence=4, **fields)
    live.log.roll()
    live.mark(end, 7)


def _of_magic_1(live: Live) -> None:
    live.append(b"".join(message(Record(n, _NOW_MS + n, b"k", b"v"), 1) for n in range(5)))
    live.log.roll()
    live.write(5, "abc", epoch=2)


_HEALTHY: Final[dict[str, Callable[[Live], None]]] = {
    "records deleted up to amid an epoch": _deleted_records,
    "the first logs deleted": _first_logs_deleted,
    "all records deleted": lambda live: live.delete_records(live.write(0, "abcdefghij", epoch=2)),
    "leader epochs go back within a segment": _epochs_go_back,
    "leader epochs go back after a roll": _epochs_go_back_behind_a_roll,
    "producers that were cleaned away": _cleaned_producers,
    "transactions that were cleaned away": _cleaned_transactions,
    "a producer that came back": _came_back,
    "an empty log": lambda live: live.log.roll(),
    "messages of magic 1 before batches": _of_magic_1,
}


_LATER, _BACK = ("leader-epoch-checkpoint", "later-log-start"), ("leader-epoch-checkpoint", "epochs-go-back")
_LOG_BACK, _EXPIRED = (".log", "leader-epochs-go-back"), (".snapshot", "expired-producers")
_CLEANED: Final = (".snapshot", "cleaned-producers")
#: What is said of them once they were killed, all of it safe; else these states show nothing.
_SAID_WHEN_KILLED: Final = {
    "records deleted up to amid an epoch": {_LATER},
    "the first logs deleted": set(),
    "all records deleted": {_LATER},
    "leader epochs go back within a segment": {_BACK, _LOG_BACK},
    "leader epochs go back after a roll": {_BACK, _LOG_BACK},
    "producers that were cleaned away": {("leader-epoch-checkpoint", "earlier-starts"), _CLEANED},
    "transactions that were cleaned away": {("leader-epoch-checkpoint", "earlier-starts"), _CLEANED, _EXPIRED},
    "a producer that came back": {_EXPIRED},
    "an empty log": set(),
    "messages of magic 1 before batches": set(),
}
#: What Kafka loses itself: an epoch whose records were all deleted goes as it loads the log, and its records come back
#: after a kill within a minute, as the log start was not written down.
_LOST_BY_KAFKA: Final = {"all records deleted": {("leader-epoch-checkpoint", "missing-epoch")}}

_Said: TypeAlias = dict[str, set[tuple[str, str]]]


def _said(log_dir: Path, *, clean: bool) -> tuple[_Said, _Said]:
    """What an audit says of each partition's files: what is safe, and what is not."""
    safe, broken = defaultdict[str, set[tuple[str, str]]](set), defaultdict[str, set[tuple[str, str]]](set)
    names = list(_HEALTHY)
    for file in audited(log_dir, clean_shutdown=clean).files:
        if file.reason is not None:
            said = safe if file.verdict == Verdict.SAFE else broken
            said[names[file.partition]].add((file.file, file.reason))
    return safe, broken


def test_no_file_of_a_healthy_partition_is_broken(kafka: Kafka, scratch: Path) -> None:
    """Kafka's log does it; what is there meanwhile is what a kill leaves. Each state is audited, then loaded by Kafka
    as after such a stop, which must keep all records, and what that leaves is audited again.
    """
    ends: dict[int, tuple[int, int]] = {}
    with ExitStack() as logs:
        for number, happens in enumerate(_HEALTHY.values()):
            directory = scratch / "running" / f"test-{number}"
            directory.mkdir(parents=True)
            log = logs.enter_context(kafka.opened_log(directory, settings=_SETTINGS))
            happens(Live(kafka, log, directory))
            log.flush(True)
            ends[number] = log.logStartOffset(), log.logEndOffset()
        shutil.copytree(scratch / "running", scratch / "killed")
    shutil.copytree(scratch / "running", scratch / "stopped")
    for path in Path(shutil.copytree(scratch / "running", scratch / "on-windows")).glob("*/leader-epoch-checkpoint"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    safe, _ = _said(scratch / "killed", clean=False)
    preallocated = {(suffix, "preallocated") for suffix in (".index", ".timeindex")}
    assert {name: safe[name] - preallocated for name in _HEALTHY} == _SAID_WHEN_KILLED
    for stop in ("killed", "stopped", "on-windows"):
        log_dir, clean = scratch / stop, stop != "killed"
        # A kill comes before the checkpoint of log starts.
        starts = {number: start if clean else 0 for number, (start, _) in ends.items()}
        lines = "".join(f"test {number} {start}\n" for number, start in starts.items() if start)
        (log_dir / LOG_START_OFFSET_CHECKPOINT).write_text(f"0\n{lines.count(chr(10))}\n{lines}")
        assert _said(log_dir, clean=clean)[1] == {}, stop
        for number, (_, end) in ends.items():
            directory, start = log_dir / f"test-{number}", starts[number]
            with kafka.opened_log(directory, log_start_offset=start, clean_shutdown=clean) as log:
                assert log.logEndOffset() == end
        assert _said(log_dir, clean=True)[1] == ({} if clean else _LOST_BY_KAFKA), f"{stop}, and started again"


def test_zeros_of_an_empty_log_delete_nothing(kafka: Kafka, scratch: Path) -> None:
    """The room that a killed broker left, and a clean stop after it: Kafka takes it for no time of 1970 as long as no
    record is there, and its first append replaces the segment. With records it is broken, and was so called before.
    """
    directory = scratch / "test-0"
    directory.mkdir()
    for suffix, size in ((".log", 0), (".index", 10_485_760), (".timeindex", 10_485_756)):
        (directory / f"{'0' * 20}{suffix}").write_bytes(bytes(size))
    assert _said(scratch, clean=True)[1] == {}
    with kafka.opened_log(directory) as log:
        live = Live(kafka, log, directory)
        assert log.deleteOldSegments() == 0
        live.write(0, "abc")
        assert log.logEndOffset() == 3
        assert log.fetchOffsetByTimestamp(_NOW_MS + 1, kafka.gateway.jvm.java.util.Optional.empty()) is not None
    assert _said(scratch, clean=True)[1] == {}


@pytest.mark.parametrize("checkpoint", ["0\n0\n", "0\n1\ntest 0 7\n", None], ids=["without it", "names it", "missing"])
def test_leader_epochs_betray_first_logs_that_are_lost(kafka: Kafka, scratch: Path, checkpoint: str | None) -> None:
    """Where `log-start-offset-checkpoint` names the partition, its first logs may be in a bucket; where that file is
    missing, nobody knows, and it is said. Logs that are marked to be deleted are missed alike: a broker that marks
    them has cut the epochs before (`UnifiedLog.deleteSegments`).
    """
    directory = scratch / "test-0"
    directory.mkdir()
    with kafka.opened_log(directory, settings=_SETTINGS) as log:
        live = Live(kafka, log, directory)
        end = live.write(0, "abcdefghij")
        live.log.roll()
        live.write(end, "klm", epoch=1)
    if checkpoint is not None:
        (scratch / LOG_START_OFFSET_CHECKPOINT).write_text(checkpoint)
    for path in directory.glob(f"{'0' * 20}.*"):
        path.rename(path.with_name(f"{path.name}.deleted"))

    def said() -> list[set[tuple[str, str]]]:
        """What is safe of the epochs, and what is broken."""
        of_partition = (each.get(next(iter(_HEALTHY)), set()) for each in _said(scratch, clean=True))
        return [{file for file in files if file[0] == LEADER_EPOCH_CHECKPOINT} for files in of_partition]

    marked = said()
    for path in directory.glob("*.deleted"):
        path.unlink()
    found = said()
    not_known, missing = ((LEADER_EPOCH_CHECKPOINT, f"first-logs-{what}") for what in ("not-known", "missing"))
    assert marked == found == ([set(), {missing}] if checkpoint == "0\n0\n" else [{not_known}, set()])
    with kafka.opened_log(directory, settings=_SETTINGS) as log:
        assert log.logStartOffset() == end
    assert said() == found, "a start leaves the trace"


def test_a_lost_log_start_brings_deleted_records_back(kafka: Kafka, scratch: Path) -> None:
    """After a clean stop its checkpoint has it, unless the file was lost. Kafka then begins at the first segment."""
    directory = scratch / "test-0"
    directory.mkdir()
    with kafka.opened_log(directory, settings=_SETTINGS) as log:
        _deleted_records(Live(kafka, log, directory))
        start = log.logStartOffset()
    (scratch / LOG_START_OFFSET_CHECKPOINT).write_text(f"0\n1\ntest 0 {start}\n")
    name = next(iter(_HEALTHY))
    assert name not in _said(scratch, clean=True)[1]
    (scratch / LOG_START_OFFSET_CHECKPOINT).unlink()
    assert _said(scratch, clean=True)[1] == {name: {("leader-epoch-checkpoint", "log-start-lost")}}
    with kafka.opened_log(directory, settings=_SETTINGS) as log:
        assert log.logStartOffset() < start
