"""A broker's next start is simulated: by how it stopped, and what it would cost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from kidxlib import recover_file
from kidxlib.audit.startup.last_stop import last_stops
from kidxlib.audit.startup.loader import simulate_startup
from kidxlib.audit.startup.simulation import Removal
from kidxlib.catalog.results import StartupRow
from kidxlib.cli.main import kidx
from kidxlib.format import checkpoint_files, layouts, segment_files
from kidxlib.format.kafka_release import KAFKA_4_3, NEWEST, NodeRelease
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.metadata_image import read_cluster_metadata
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.recovery.options import RecoverOptions
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE
from tests.model.recover import recover_reference
from tests.support.audits import audited, verified
from tests.support.cluster_metadata import data, leader_change, of_broker, put_metadata, topic, topic_id, write_copy
from tests.support.files import flip

#: Bytes a second that one thread of a broker recovers, as docs/audit.md says of the forecast.
RECOVERY_RATE = 250_000_000
_SPARSE: Final = (segment_files.OFFSET_INDEX_SUFFIX, segment_files.TIME_INDEX_SUFFIX)


def _actions(segments: list[StartupRow]) -> dict[int, tuple[str, int, int | None]]:
    """By base offset, what a broker would do, and what it would read and lose."""
    return {row.base_offset: (row.action, row.read_bytes, row.lost_records) for row in segments}


def test_the_next_start_goes_by_the_log_dir(tree: Path) -> None:
    """After an unclean stop the segment with the recovery point is read, and all after it; after a clean one none.

    A checkpoint that cannot be read says 0, as to a broker.
    """
    size = (tree / "txn-mixed-0" / segment_files.segment_file(5891, segment_files.LOG_SUFFIX)).stat().st_size
    loaded = dict.fromkeys((0, 84, 5797), ("load", 0, 0))
    (tree / checkpoint_files.RECOVERY_POINT_CHECKPOINT).write_text("0\n1\ntxn-mixed 0 6000\n")
    found = verified(tree, code=0)
    assert _actions([StartupRow.of_dict(row) for row in found["startup"]]) == {**loaded, 5891: ("rebuild", size, 0)}
    assert (found["start_bytes"], found["start_seconds"]) == (size, size / RECOVERY_RATE)
    [partition] = found["partitions"]
    assert not partition["clean_shutdown"]
    assert (partition["log_start_offset"], partition["log_end_offset"]) == (0, 10333)
    (tree / CLEAN_SHUTDOWN_FILE).touch()
    assert _actions(audited(tree).startup) == {**loaded, 5891: ("load", 0, 0)}
    unclean = _actions(audited(tree, clean_shutdown=False).startup)
    assert unclean == {**loaded, 5891: ("rebuild", size, 0)}
    (tree / checkpoint_files.RECOVERY_POINT_CHECKPOINT).write_text("0\n1\nno offset\n")
    unclean = _actions(audited(tree, clean_shutdown=False).startup)
    assert {action for action, *_ in unclean.values()} == {"rebuild"}


def test_the_metadata_is_recovered_after_a_clean_stop_too(tree: Path) -> None:
    """A node recovers the whole log of `__cluster_metadata` at each start, whatever the marker of a clean stop says:
    torn bytes go, and indexes that Kafka 4.4 leaves preallocated are made anew. In another partition all that stays,
    and retention takes the zeros for 1970.
    """
    (tree / CLEAN_SHUTDOWN_FILE).touch()
    metadata = tree / METADATA_DIRECTORY
    values = [topic(f"t{number}", topic_id("a")) for number in range(200)]
    batches = [data(number, [value], 1_000 + number) for number, value in enumerate(values, start=1)]
    write_copy(metadata, {0: leader_change(0, [1]) + b"".join(batches)})
    log = metadata / segment_files.segment_file(0, segment_files.LOG_SUFFIX)
    recovered = recover_file(log)
    log.with_suffix(segment_files.OFFSET_INDEX_SUFFIX).write_bytes(recovered.offset_index)
    log.with_suffix(segment_files.TIME_INDEX_SUFFIX).write_bytes(recovered.time_index[:-12])  # the last is of a close
    last_log = tree / "txn-mixed-0" / segment_files.segment_file(5891, segment_files.LOG_SUFFIX)
    for path in (log, last_log):
        with path.open("ab") as file:
            file.write(b"\x7f" * 100)
        for suffix, size in ((segment_files.OFFSET_INDEX_SUFFIX, 8), (segment_files.TIME_INDEX_SUFFIX, 12)):
            os.truncate(path.with_suffix(suffix), 10_485_760 // size * size)
    rows = audited(tree)
    files = {path: (file.verdict, file.reason) for file in rows.files if (path := Path(file.path)).suffix in _SPARSE}
    starts = {(row.topic, row.base_offset): (row.action, row.lost_bytes) for row in rows.startup}
    for path, time_index, start in ((log, "safe", ("truncate", 100)), (last_log, "broken", ("load", 0))):
        assert files[path.with_suffix(segment_files.OFFSET_INDEX_SUFFIX)] == ("safe", "preallocated")
        assert files[path.with_suffix(segment_files.TIME_INDEX_SUFFIX)] == (time_index, "preallocated")
        assert starts[path.parent.name.rpartition("-")[0], int(path.stem)] == start


def test_versions_of_aborted_transactions_go_by_the_kafka_of_the_node(tree: Path) -> None:
    """One that 4.3 takes for 0 keeps a later broker from loading the log dir; what a node is nobody may know."""
    (tree / CLEAN_SHUTDOWN_FILE).touch()
    index = tree / "txn-mixed-0" / segment_files.segment_file(84, segment_files.TRANSACTION_INDEX_SUFFIX)
    index.write_bytes(b"\0\1" + index.read_bytes()[2:])
    for release, action in ((KAFKA_4_3, "load"), (NEWEST, "fail")):
        started = simulate_startup(index.parent, RecoverOptions(), clean_shutdown=True, kafka=NodeRelease(release))
        assert {segment.base_offset: segment.action for segment in started.segments}[84] == action
    for options, code, verdict in (((), 3, "broken"), (("--kafka-version", "4.3"), 0, "safe")):
        found = verified(tree, *options, code=code)
        [file] = [each for each in found["files"] if each["path"] == str(index)]
        assert file["verdict"] == verdict and "--kafka-version" in file["detail"], file
        planned = CliRunner().invoke(kidx, ["recover", str(tree), *options])
        assert ("is of version 1" in planned.stdout) == (code == 3), planned.stdout
    (tree / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    for level, given, release in (
        (None, None, NEWEST),
        (None, KAFKA_4_3, KAFKA_4_3),
        (30, None, KAFKA_4_3),
        (30, NEWEST, NEWEST),
        (33, None, NEWEST),
    ):
        node = of_broker("RegisterBrokerRecord", 1, [topic_id("a")], level=level)
        copy = put_metadata(tree.parent / f"metadata-{level}", [node])
        stop = last_stops([tree], metadata=read_cluster_metadata(copy).to_end, kafka_version=given)[tree]
        kafka = stop.of(TopicPartition("txn-mixed", 0)).kafka
        assert (kafka.release, kafka.is_assumed) == (release, (level, given) == (None, None))
        shutil.rmtree(copy)


def test_a_malformed_log_that_is_to_be_swapped_in_is_named(tree: Path) -> None:
    """A broker ends over it; the other partitions are audited all the same."""
    swap = tree / "txn-mixed-0" / segment_files.segment_file(84, ".log.swap")
    swap.write_bytes(bytes(8) + b"\x00\x00\x00\x05" + bytes(60))
    [partition] = [row for row in verified(tree, code=3)["partitions"] if row["failure"]]
    assert partition["failure"] == (
        f"{swap}: batch at byte 0: found size 5, expected 14 or more; a broker that starts ends with an error"
    )


def test_what_a_start_would_cost_is_told(tree: Path) -> None:
    """A flipped bit truncates a segment and takes the later ones with it; files that belong to nothing would go."""
    directory = tree / "txn-mixed-0"
    records = {base_offset: valid[0] for base_offset, valid in _valid(directory).items()}
    log = directory / segment_files.segment_file(84, segment_files.LOG_SUFFIX)
    log_bytes = log.stat().st_size
    flip(log, log_bytes // 2)
    kept_records, kept_bytes = _valid(directory)[84]
    (directory / segment_files.segment_file(9000, segment_files.TIME_INDEX_SUFFIX)).touch()
    (directory / f"{segment_files.segment_file(0, segment_files.LOG_SUFFIX)}{segment_files.DELETED_SUFFIX}").touch()
    rows = audited(tree)
    found = {offset: (action, lost) for offset, (action, _, lost) in _actions(rows.startup).items()}
    assert found == {
        0: ("rebuild", 0),
        84: ("truncate", records[84] - kept_records),
        5797: ("delete", records[5797]),
        5891: ("delete", records[5891]),
    }
    assert [row.lost_bytes for row in rows.startup][:2] == [0, log_bytes - kept_bytes]
    [partition] = rows.partitions
    assert {each["file"].partition(".")[2]: each["why"] for each in partition.removed} == {
        "timeindex": Removal.ORPHAN.value,
        "log.deleted": Removal.DELETED.value,
    }
    shown = CliRunner().invoke(kidx, ["verify", str(tree)]).stdout
    lost = f"{log_bytes - kept_bytes:,} of {log_bytes:,} bytes, {records[84] - kept_records:,} whole records"
    assert f"truncate: txn-mixed-0 84: {lost}\n  crc-mismatch at byte {kept_bytes}: " in shown
    assert "a broker will remove: 1 index file without a log\n" in shown


def _valid(directory: Path) -> dict[int, tuple[int, int]]:
    """By base offset, how many records and bytes are valid, found in plain Python."""
    found = {}
    for log in sorted(directory.glob("*.log")):
        valid = recover_reference(log.read_bytes(), int(log.stem), RecoverOptions()).valid
        sizes = (batch.header["batch_length"] + layouts.LOG_OVERHEAD for batch in valid)
        found[int(log.stem)] = sum(batch.header["records_count"] for batch in valid), sum(sizes)
    return found
