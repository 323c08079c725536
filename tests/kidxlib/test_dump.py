"""`kidx dump` beside what Kafka's tool has: JSON, forms of keys and values, leader epochs, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result

from kidxlib import formats
from kidxlib.cli.dump import dump
from kidxlib.command import ExitCode
from kidxlib.errors import UsageError
from kidxlib.names import LEADER_EPOCH_CHECKPOINT, segment_file
from kidxlib.offset_index import OffsetIndex
from kidxlib.records import Header, Record
from tests.kidxlib import encoded
from tests.kidxlib.golden import DATA, SAMPLES

_PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "dump.md"
_SEGMENT: Final = "txn-mixed-0", 84
_RECORDS: Final = (
    Record(7, 1_000, b"\0\0\0\x09", b'{"a": 1.50,\n "b": null}', (Header("h", b"\xff"), Header("i", None))),
    Record(8, 1_001, None, b"\xc3\xa4"),
    Record(9, 1_002, b"NaN", None),
)


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(dump, arguments, standalone_mode=False)


def _objects(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _run("--json", *arguments).stdout.splitlines()]


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """All files of a segment of a real broker; its log."""
    topic, base_offset = _SEGMENT
    for folder in (SAMPLES / topic, DATA / "expected" / topic):
        for path in [*folder.glob(segment_file(base_offset, ".*")), folder / LEADER_EPOCH_CHECKPOINT]:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path / segment_file(base_offset, ".log")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / segment_file(7, ".log")
    path.write_bytes(encoded.batch_v2(_RECORDS))
    return path


def _documented() -> dict[str, list[str]]:
    """The fields of each type of object, by the page."""
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]*)\|$", _PAGE.read_text(), re.MULTILINE)
    return {kind: re.findall(r"`(\w+)`", fields) for kind, fields in rows}


def test_objects_are_those_of_the_page(segment: Path, tmp_path: Path) -> None:
    """Each file of a segment; then the same, spoilt so that each finding is there."""
    files = [str(path) for path in sorted(tmp_path.iterdir())]
    found = _objects("--print-data-log", *files) + _objects("--index-sanity-check", *files)
    index, time_index = segment.with_suffix(".index"), segment.with_suffix(".timeindex")
    _flip(index, 8 + 3)  # the second entry's offset
    _flip(
        time_index, 7, 12 + 9, 24 + 2
    )  # the first's timestamp, the second's offset, and the third's timestamp, far back
    segment.write_bytes(segment.read_bytes() + encoded.message(Record(10**6, 1, b"behind a gap", None), 1) + b"\0")
    found += _objects("--print-data-log", *files)
    index.write_bytes(b"")
    found += _objects(str(index))
    segment.unlink()
    found += _objects(str(time_index))

    documented = _documented()
    assert {each["type"] for each in found} == documented.keys()
    for each in found:
        kind = each.pop("type")
        del each["file"]
        if kind == "record" and "key" not in each:  # of control batches
            each |= dict.fromkeys(("key", "value", "headers"))
        assert list(each) == documented[kind]


def _flip(path: Path, *places: int) -> None:
    data = bytearray(path.read_bytes())
    for place in places:
        data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("form", "keys", "values"),
    [
        ("text", ["\0\0\0\t", None, "NaN"], ['{"a": 1.50,\n "b": null}', "ä", None]),
        ("hex", ["00000009", None, "4e614e"], [_RECORDS[0].value.hex() if _RECORDS[0].value else "", "c3a4", None]),
        ("json", ["\0\0\0\t", None, "NaN"], [{"a": 1.5, "b": None}, "ä", None]),
        ("int", [9, None, "4e614e"], [int.from_bytes(b'{"a"'), "c3a4", None]),
        ("long", ["00000009", None, "4e614e"], [int.from_bytes(b'{"a": 1.'), "c3a4", None]),
    ],
)
def test_forms_of_keys_and_values(log: Path, form: str, keys: Sequence[object], values: Sequence[object]) -> None:
    shown = [each for each in _objects("--keys", form, "--values", form, str(log)) if each["type"] == "record"]
    assert [each["key"] for each in shown] == keys
    assert [each["value"] for each in shown] == values


def test_json_within_lines(log: Path) -> None:
    """In one line, and each number as it was written."""
    assert ' payload: {"a": 1.50,  "b": null}' in _run("--values", "json", str(log)).stdout


def test_header_values_are_shown(log: Path) -> None:
    first = _objects("--values", "hex", str(log))[2]
    assert first["headers"] == [{"key": "h", "value": "ff"}, {"key": "i", "value": None}]


def test_leader_epochs(tmp_path: Path) -> None:
    path = tmp_path / LEADER_EPOCH_CHECKPOINT
    path.write_text("0\n2\n5 10\n4 12\n")  # as it stands, be it in order or not
    result = _run(str(path))
    assert result.stdout.splitlines()[1:] == ["epoch: 5 startOffset: 10", "epoch: 4 startOffset: 12"]
    path.write_text("0\n2\n5 10\n")
    assert _run(str(path)).return_value == ExitCode.NOT_WELL


def test_one_malformed_file_does_not_stop_the_others(log: Path, tmp_path: Path) -> None:
    broken = tmp_path / segment_file(1, ".log")
    broken.write_bytes(bytes(formats.BATCH_V2_BYTES_MIN))
    result = _run("--files", f"{broken},{log}")
    assert result.return_value == ExitCode.NOT_WELL
    assert result.stderr == f"{broken}: batch at byte 0: found size 0, expected 14 or more\n"
    assert len(result.stdout.splitlines()) == 5


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("7.swap", "not a file that can be dumped"),
        ("partition.metadata", "not a file that can be dumped"),
        ("a.log", "has to begin with an offset"),
        ("8.log", "no such file"),
        ("8.index", "no such file"),
        (f"{'8' * 5_000}.log", "has to begin with an offset"),
        (f"{'8' * 250}.log", "has to begin with an offset"),
        ("7.log/8.log", "Not a directory"),
        (f"{'x' * 300}.snapshot", "File name too long"),
        ("folder.snapshot", "not a regular file"),
    ],
)
def test_files_that_cannot_be_dumped(log: Path, name: str, message: str) -> None:
    """One line, and nothing is printed, of other files neither."""
    log.with_name("folder.snapshot").mkdir()
    log = log.rename(log.with_name("7.log"))
    result = _run(str(log), str(log.parent / name))
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
    assert not result.stdout


# ---- an index without its log ----


@pytest.fixture
def mirror(segment: Path) -> Path:
    """The segment's side files in a mirror tree, its log in a log dir; the log."""
    log_dir, tree = segment.parent / "logs" / _SEGMENT[0], segment.parent / "mirror" / _SEGMENT[0]
    log_dir.mkdir(parents=True)
    tree.mkdir(parents=True)
    for path in [*segment.parent.glob(segment_file(_SEGMENT[1], ".*index"))]:
        path.rename(tree / path.name)
    return segment.rename(log_dir / segment.name)


def _index(mirror: Path, suffix: str) -> Path:
    return mirror.parents[2] / "mirror" / mirror.parent.name / mirror.with_suffix(suffix).name


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("up", [0, 1], ids=["partition's folder", "log dir"])
def test_an_index_is_compared_with_the_log_in_another_folder(mirror: Path, suffix: str, up: int) -> None:
    """By the name of the index's own folder; and what does not fit is found."""
    index = _index(mirror, suffix)
    log_dir = str(mirror.parents[up])
    result = _run("--log-dir", log_dir, str(index))
    assert (result.return_value, result.stderr) == (ExitCode.OK, "")
    for name in (index.name, mirror.name):
        (mirror.parent / name).write_bytes((index if name == index.name else mirror).read_bytes())
    beside = [_index(mirror, ".index"), index]
    for path in beside:
        (mirror.parent / path.name).write_bytes(path.read_bytes())
    assert result.stdout.splitlines()[1:] == _run(str(mirror.parent / index.name)).stdout.splitlines()[1:]
    _flip(index, 3 if suffix == ".index" else 7)
    result = _run("--log-dir", log_dir, "--verify-index-only", str(index))
    assert result.return_value == ExitCode.NOT_WELL
    assert result.stderr.splitlines()[-1].startswith(f"{index}: 1 entry whose batch ")


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_without_its_log_is_shown_as_it_stands(mirror: Path, suffix: str) -> None:
    """The same lines, and one that says that nothing was compared; nothing was found wrong."""
    index = _index(mirror, suffix)
    compared = _run("--log-dir", str(mirror.parent), str(index))
    result = _run(str(index))
    assert (result.return_value, result.stdout) == (ExitCode.OK, compared.stdout)
    missing = index.with_suffix(".log")
    assert result.stderr == f"{index}: not compared, as {missing} is not there; --log-dir DIR says where logs are\n"
    first, *entries = _objects(str(index))
    assert first == {"file": str(index), "type": "not_compared", "missing": str(missing)}
    assert entries == _objects("--log-dir", str(mirror.parent), str(index))
    assert _run("--index-sanity-check", str(index)).stderr == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--verify-index-only",), f"compared with {segment_file(84, '.log')}, which is not there; --log-dir DIR"),
        (("--log-dir", "mirror"), f"mirror/{_SEGMENT[0]}/{segment_file(84, '.log')} there, which "),
        (("--log-dir", "nowhere"), "'nowhere' does not exist"),
    ],
)
def test_a_comparison_that_was_asked_for_has_its_log(
    mirror: Path, options: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mirror.parents[2])
    result = _run(*options, str(_index(mirror, ".index")))
    assert result.exception is not None
    assert message in str(result.exception) or message in getattr(result.exception, "message", "")


# ---- what is said at the end ----


def _entry(offset: int, position: int) -> bytes:
    return offset.to_bytes(4, signed=True) + position.to_bytes(4, signed=True)


def test_a_malformed_index_is_told_from_a_malformed_log(tmp_path: Path) -> None:
    """Which entry it is, and where it leads: before the log, amid a batch, after the end, and to a log that is
    malformed there or earlier.
    """
    log, index = tmp_path / segment_file(7, ".log"), tmp_path / segment_file(7, ".index")
    batch = encoded.batch_v2(_RECORDS)
    size = len(batch)
    log.write_bytes(batch * 3)

    def found(position: int, suffix: str = ".index") -> str:
        index.write_bytes(_entry(2, 0) + _entry(3, position))
        index.with_suffix(".timeindex").write_bytes((1_002).to_bytes(8) + _entry(0, 3)[4:])
        result = _run(str(index.with_suffix(suffix)))
        assert result.return_value == ExitCode.NOT_WELL
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


def test_the_last_line_says_what_is_wrong(segment: Path) -> None:
    """How many, of what, and where the first is; in a line for each file, with --json too."""
    sound = _run(str(segment))
    assert (sound.return_value, sound.stderr) == (ExitCode.OK, "")
    batches = [each["position"] for each in _objects(str(segment)) if each["type"] == "batch"]
    data = bytearray(segment.read_bytes())
    for number in (9, 5):
        data[batches[number + 1] - 1] ^= 1
    segment.write_bytes(bytes(data) + bytes(3))
    index = segment.with_suffix(".index")
    _flip(index, 3, 8 + 3)
    first = OffsetIndex.open(str(index), _SEGMENT[1]).entry(0).offset
    of_log = (
        f"{segment}: checksum does not match in 2 of {len(batches)} batches, the first at byte {batches[5]}; "
        f"3 bytes after the last whole batch, from byte {len(data)} on"
    )
    of_index = f"{index}: 2 entries whose batch ends with another offset, the first with offset {first}"
    for options in ((), ("--json",)):
        result = _run(*options, str(segment), str(index), str(segment.with_suffix(".txnindex")))
        assert result.return_value == ExitCode.NOT_WELL
        assert result.stderr.splitlines()[-2:] == [of_log, of_index]


def test_no_decoder_classes(log: Path) -> None:
    result = _run("--key-decoder-class", "com.example.Decoder", str(log))
    assert isinstance(result.exception, UsageError)
    assert "com.example.Decoder: expected text, hex, json, int, long or one of" in str(result.exception)


def test_a_reader_that_has_seen_enough(log: Path) -> None:
    """`| head -1`: no word, and no fault."""
    log.write_bytes(encoded.batch_v2(_RECORDS) * 5_000)
    command = (sys.executable, "-c", "from kidxlib.cli.main import main; main()", "dump", str(log))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as kidx:
        assert kidx.stdout is not None
        assert kidx.stderr is not None
        assert kidx.stdout.readline() == f"Dumping {log}\n"
        kidx.stdout.close()
        assert kidx.stderr.read() == ""
    assert kidx.returncode == ExitCode.OK


def test_a_gate_is_not_passed_by_a_reader_that_has_seen_enough() -> None:
    """The exit code of a program that SIGPIPE ends, whatever was found."""
    reader, writer = os.pipe()
    os.close(reader)
    command = (sys.executable, "-c", "from kidxlib.cli.main import main; main()", "verify", str(SAMPLES))
    with os.fdopen(writer, "wb") as closed:
        kidx = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, check=False)
    assert kidx.returncode == ExitCode.OUTPUT_CLOSED == 128 + signal.SIGPIPE, kidx.stderr


def test_a_full_disk(log: Path) -> None:
    command = (sys.executable, "-c", "from kidxlib.cli.main import main; main()", "dump", str(log))
    with open("/dev/full", "wb") as full:
        kidx = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (kidx.returncode, kidx.stderr) == (ExitCode.FAILED, "error: standard output: No space left on device\n")
