"""Indexes that do not fit their log."""

from __future__ import annotations

from pathlib import Path

from kidxlib.format.segment_files import segment_file
from kidxlib.terminal.exit_codes import ExitCode
from tests.support.dump import RECORDS, run
from tests.support.logs import encoded


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
