"""`kidx dump` beside what Kafka's tool has: JSON, leader epochs, a malformed file among others, and indexes that do not
fit their log.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from kidxlib.format import layouts
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import BOOTSTRAP_SNAPSHOT, segment_file
from kidxlib.records.reader import Record
from kidxlib.terminal.exit_codes import ExitCode
from tests.support.dump import RECORDS, objects, run
from tests.support.files import flip
from tests.support.logs import encoded

_PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "dump.md"


def _documented() -> dict[str, list[str]]:
    """The fields of each type of object, by the page."""
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]*)\|$", _PAGE.read_text(), re.MULTILINE)
    return {kind: re.findall(r"`(\w+)`", fields) for kind, fields in rows}


def test_objects_are_those_of_the_page(segment: Path, tmp_path: Path) -> None:
    """Each file of a segment; then the same, spoilt so that each finding is there."""
    files = [str(path) for path in sorted(tmp_path.iterdir())]
    found = objects("--print-data-log", *files) + objects("--index-sanity-check", *files)
    index, time_index = segment.with_suffix(".index"), segment.with_suffix(".timeindex")
    flip(index, 8 + 3)  # the second entry's offset
    flip(
        time_index, 7, 12 + 9, 24 + 2
    )  # the first's timestamp, the second's offset, and the third's timestamp, far back
    segment.write_bytes(segment.read_bytes() + encoded.message(Record(10**6, 1, b"after a gap", None), 1) + b"\0")
    found += objects("--print-data-log", *files)
    index.write_bytes(b"")
    found += objects(str(index))
    segment.unlink()
    found += objects(str(time_index))
    (tmp_path / BOOTSTRAP_SNAPSHOT).touch()
    found += objects(str(tmp_path / BOOTSTRAP_SNAPSHOT))

    documented = _documented()
    assert {each["type"] for each in found} == documented.keys()
    for each in found:
        kind = each.pop("type")
        del each["file"]
        if kind == "record" and "key" not in each:  # of control batches
            each |= dict.fromkeys(("key", "value", "headers"))
        assert list(each) == documented[kind]


def test_leader_epochs(tmp_path: Path) -> None:
    path = tmp_path / LEADER_EPOCH_CHECKPOINT
    path.write_text("0\n2\n5 10\n4 12\n")  # as it stands, in order or not
    result = run(str(path))
    assert result.stdout.splitlines()[1:] == ["epoch: 5 startOffset: 10", "epoch: 4 startOffset: 12"]
    path.write_text("0\n2\n5 10\n")
    assert run(str(path)).return_value == ExitCode.PROBLEMS_FOUND


def test_one_malformed_file_does_not_stop_the_others(log: Path, tmp_path: Path) -> None:
    broken = tmp_path / segment_file(1, ".log")
    broken.write_bytes(bytes(layouts.BATCH_V2_BYTES_MIN))
    result = run("--files", f"{broken},{log}")
    assert result.return_value == ExitCode.PROBLEMS_FOUND
    assert result.stderr == f"{broken}: batch at byte 0: found size 0, expected 14 or more\n"
    assert len(result.stdout.splitlines()) == 5


def _entry(offset: int, position: int) -> bytes:
    return offset.to_bytes(4, signed=True) + position.to_bytes(4, signed=True)


def test_a_malformed_index_is_told_from_a_malformed_log(tmp_path: Path) -> None:
    """Which entry it is, and where it leads: before the log, amid a batch, after the end, and to a log that is
    malformed there or earlier.
    """
    log, index = tmp_path / segment_file(7, ".log"), tmp_path / segment_file(7, ".index")
    batch = encoded.batch_v2(RECORDS)
    size = len(batch)
    log.write_bytes(batch * 3)

    def found(position: int, suffix: str = ".index") -> str:
        index.write_bytes(_entry(2, 0) + _entry(3, position))
        index.with_suffix(".timeindex").write_bytes((1_002).to_bytes(8) + _entry(0, 3)[4:])
        result = run(str(index.with_suffix(suffix)))
        assert result.return_value == ExitCode.PROBLEMS_FOUND
        return result.stderr.splitlines()[-1]

    second = "entry 2 of 2, at byte 8, leads to byte {} of the log"
    assert found(-3234) == f"{index}: {second.format(-3234)}, expected a batch there; the log has {3 * size} bytes"
    assert found(5) == f"{index}: {second.format(5)}, where no batch starts"
    assert found(4 * size).startswith(f"{index}: {second.format(4 * size)}, expected a batch there")
    times = f"{index.with_suffix('.timeindex')}: {index}: "
    assert found(-3234, ".timeindex") == f"{times}{second.format(-3234)}, expected 0 to {3 * size}"
    assert found(5, ".timeindex") == f"{times}{second.format(5)}, where no batch starts"
    log.write_bytes(batch + bytes(size) + batch)
    assert found(size).startswith(f"{index}: its log is malformed: batch at byte {size}: found")
    assert found(2 * size + 5).startswith(f"{index}: its log is malformed: batch at byte {size}: found size 0")
