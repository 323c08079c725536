"""What is said of a file at the end of its dump."""

from __future__ import annotations

from pathlib import Path

from kidxlib.index.offset import OffsetIndex
from kidxlib.terminal.exit_codes import ExitCode
from tests.support.dump import SEGMENT, flip, objects, run


def test_the_last_line_says_what_is_wrong(segment: Path) -> None:
    """How many, of what, and where the first is; in a line for each file, with --json too."""
    sound = run(str(segment))
    assert (sound.return_value, sound.stderr) == (ExitCode.OK, "")
    batches = [each["position"] for each in objects(str(segment)) if each["type"] == "batch"]
    data = bytearray(segment.read_bytes())
    for number in (9, 5):
        data[batches[number + 1] - 1] ^= 1
    segment.write_bytes(bytes(data) + bytes(3))
    index = segment.with_suffix(".index")
    flip(index, 3, 8 + 3)
    first = OffsetIndex.open(str(index), SEGMENT[1]).entry(0).offset
    of_log = (
        f"{segment}: checksum does not match in 2 of {len(batches)} batches, the first at byte {batches[5]}; "
        f"3 bytes after the last whole batch, from byte {len(data)} on"
    )
    of_index = f"{index}: 2 entries whose batch ends with another offset, the first with offset {first}"
    for options in ((), ("--json",)):
        result = run(*options, str(segment), str(index), str(segment.with_suffix(".txnindex")))
        assert result.return_value == ExitCode.PROBLEMS_FOUND
        assert result.stderr.splitlines()[-2:] == [of_log, of_index]
