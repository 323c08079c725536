"""A broker's next start is simulated: by how it stopped, and what it would cost."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from kidxlib.audit.startup.simulation import Removal
from kidxlib.catalog.results import StartupRow
from kidxlib.cli.main import kidx
from kidxlib.format import checkpoint_files, layouts, segment_files
from kidxlib.recovery.options import RecoverOptions
from kidxlib.storage.small_files import CLEAN_SHUTDOWN_FILE
from tests.model.recover import recover_reference
from tests.support.audits import audited, verified

#: Bytes a second that one thread of a broker recovers, as docs/audit.md says of the forecast.
RECOVERY_RATE = 250_000_000


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
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
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
    assert [row.lost_bytes for row in rows.startup][:2] == [0, len(data) - kept_bytes]
    [partition] = rows.partitions
    assert {each["file"].partition(".")[2]: each["why"] for each in partition.removed} == {
        "timeindex": Removal.ORPHAN.value,
        "log.deleted": Removal.DELETED.value,
    }
    shown = CliRunner().invoke(kidx, ["verify", str(tree)]).stdout
    lost = f"{len(data) - kept_bytes:,} of {len(data):,} bytes, {records[84] - kept_records:,} whole records"
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
