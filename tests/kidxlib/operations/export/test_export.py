"""An export holds what `kidxlib.read` gives, in any format, and appears as a whole, also if it is killed as it gives
its parts their place. Lines of JSON hold what the rows hold, whatever bytes that are.
"""

from __future__ import annotations

import base64
import itertools
import json
import shutil
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kidxlib.errors import DamagedLogError, KidxError, UsageError
from kidxlib.library.read import read
from kidxlib.operations.export import export as export_run
from kidxlib.operations.export.export import (
    Exported,
    ExportFormat,
    ExportStaging,
    FinishedPart,
    PlannedExport,
    export_records,
    export_request,
    records_as_json_lines,
    write_part,
)
from kidxlib.reading.walk import Damage
from kidxlib.records.arrow_columns import CONSUMED
from tests.support.files import flip
from tests.support.logs.golden import SAMPLES

_PARTS: Final = 2


def _export(directory: Path, output: Path, threads: int = 2, **options: Any) -> Exported:
    asked: dict[str, Any] = {
        "topics": ".*",
        "offsets": (),
        "times": None,
        "isolation": "read_uncommitted",
        "include_headers": False,
    }
    asked |= {"columns": None, "index_dir": None, "catalog": None, "to_log_end": None, "skip_damage": False, **options}
    return export_records(export_request([str(directory)], output=str(output), **asked), threads)


def _table(output: Path) -> pa.Table:
    if output.is_dir():
        return pa.concat_tables(pq.read_table(part) for part in sorted(output.iterdir()))
    return pa.ipc.open_file(str(output)).read_all()


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_run, "_PART_BYTES", 1_000_000)


@pytest.mark.parametrize("name", ["all.parquet", "all.arrow"])
@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({"include_headers": True}, {"include_headers": True}),
        ({"isolation": "read_committed", "topics": "txn-.*"}, {"isolation": "read_committed", "topics": "txn-.*"}),
        ({"offsets": ("100:300",), "columns": "offset,topic"}, {"offsets": (100, 300), "columns": ["offset", "topic"]}),
        (
            {"offsets": ("txn-mixed-0=:9", "plain-zstd-0=13000:")},
            {"offsets": {"txn-mixed-0": (None, 9), "plain-zstd-0": (13_000, None)}},
        ),
        ({"times": "2026-11-21T01:32:20Z/"}, {"times": ("2026-11-21T01:32:20Z", None)}),
        ({"offsets": ("900000:",)}, {"offsets": (900_000, None)}),
    ],
)
def test_an_export_holds_what_is_read(
    name: str, options: dict[str, Any], asked: dict[str, Any], tmp_path: Path
) -> None:
    output = tmp_path / "new" / name
    output.parent.mkdir()
    done = _export(SAMPLES, output, **options)
    expected = read(SAMPLES, **asked).read_all()
    found = _table(output)
    assert found.equals(expected) and (done.rows, done.damage, done.failed) == (expected.num_rows, (), ())
    assert [path.name for path in output.parent.iterdir()] == [name]
    if output.is_dir():
        assert {path.suffix for path in output.iterdir()} == {".parquet"} and len(list(output.iterdir())) > 1


def test_json_lines_are_of_all_rows(tmp_path: Path) -> None:
    output = tmp_path / "all.jsonl"
    done = _export(SAMPLES, output, isolation="read_committed", include_headers=True)
    rows = read(SAMPLES, isolation="read_committed", include_headers=True)
    assert output.read_bytes() == b"".join(map(records_as_json_lines, rows))
    assert done.rows == len(output.read_bytes().splitlines())


def test_what_is_finished_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same command alone; logs that have grown since are read as they were."""
    logs, output = tmp_path / "logs", tmp_path / "all.arrow"
    shutil.copytree(SAMPLES, logs)
    expected = read(logs).read_all()
    written: list[Path] = []

    def failing(form: ExportFormat, path: Path, *rest: Any) -> int:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(path)
        return write_part(form, path, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(export_run, "write_part", failing)
        with pytest.raises(KeyboardInterrupt):
            _export(logs, output, threads=1)
    staging = tmp_path / "all.arrow.kidx-export"
    assert len(list(staging.glob("part-*.arrow"))) == 2 and not output.exists()
    with pytest.raises(UsageError, match="an export with other options was begun and not finished; give those"):
        _export(logs, output, include_headers=True)
    with max((logs / "plain-zstd-0").glob("*.log")).open("ab") as file:
        file.write(bytes(100))
    first, written[:] = [*written], []

    def noting(form: ExportFormat, path: Path, *rest: Any) -> int:
        written.append(path)
        return write_part(form, path, *rest)

    monkeypatch.setattr(export_run, "write_part", noting)
    _export(logs, output, threads=1)
    assert _table(output).equals(expected) and not staging.exists()
    assert written and not {*written} & {*first}


def _damaged(logs: Path, number: int) -> Path:
    """A log dir of two partitions, and the log of one that is damaged amid it."""
    for partition in ("txn-mixed-0", "plain-zstd-0"):
        shutil.copytree(SAMPLES / partition, logs / partition)
    log = sorted((logs / "txn-mixed-0").glob("*.log"))[number]
    flip(log, 200_000)
    return log


def test_a_damaged_partition_ends_at_the_damage_and_others_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever of it was written already; also in a run that takes up another."""
    logs, output = tmp_path / "logs", tmp_path / "all.arrow"
    log = _damaged(logs, 1)
    monkeypatch.setattr(export_run, "_PART_BYTES", 100_000)
    with monkeypatch.context() as patched:
        patched.setattr(export_run, "assemble", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            _export(logs, output)
    done = _export(logs, output)
    expected = list[pa.RecordBatch]()
    with pytest.raises(DamagedLogError):
        expected.extend(read(logs, topics="txn-mixed"))
    others = read(logs, topics="plain-zstd").read_all()
    assert _table(output).equals(pa.concat_tables([others, pa.Table.from_batches(expected)]))
    assert len(done.failed) == 1 and done.failed[0].startswith(f"{log}: byte ") and not done.is_whole
    passed = tmp_path / "passed.arrow"
    done, lost = _export(logs, passed, skip_damage=True), list[Damage]()
    assert _table(passed).equals(read(logs, on_damage=lost.append).read_all())
    assert list(done.damage) == [f"{each}; not exported: {each.lost}" for each in lost] and len(lost) == 1


def test_offsets_that_are_in_no_log_are_told(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(SAMPLES, logs)
    (logs / "txn-mixed-0" / f"{5797:020}.log").unlink()
    done = _export(logs, tmp_path / "all.arrow")
    [gap] = done.left_out  # and not those of the topic that is compacted
    assert (gap.partition.topic, gap.first_offset, gap.end_offset, gap.why) == ("txn-mixed", 5797, 5891, "between-logs")
    assert not done.is_whole


def _interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_partition_that_cannot_be_read_is_named(isolation: str, tmp_path: Path) -> None:
    """What is wrong with a log is not said of the output. Where no other partition is there nothing is made."""
    logs, output = tmp_path / "logs", tmp_path / "all.arrow"
    _damaged(logs, 1)
    log = max((logs / "txn-mixed-0").glob("*.log"))
    log.unlink()
    log.mkdir()
    done = _export(logs, output, isolation=isolation)
    assert len(done.failed) == 1 and "txn-mixed-0" in done.failed[0] and "--output" not in done.failed[0]
    assert set(_table(output)["topic"].to_pylist()) >= {"plain-zstd"}
    shutil.rmtree(logs / "plain-zstd-0")
    for first in (logs / "txn-mixed-0").glob("*.log"):
        if first.is_file():
            first.write_bytes(b"\1" * 500)
    with pytest.raises(KidxError, match="txn-mixed-0"):
        _export(logs, tmp_path / "none.arrow", isolation=isolation)
    assert not list(tmp_path.glob("none*"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"output": "nowhere/all.arrow"}, "--output nowhere/all.arrow: no directory .*/nowhere; expected one"),
        ({"output": "all.csv"}, "--output all.csv: expected a name that ends in .parquet, .arrow, .jsonl"),
        ({"output": "s3://bucket/all.arrow"}, "--output s3://bucket/all.arrow: expected a path of this machine"),
        ({"offsets": ("5",)}, "--offsets 5: expected START:END, START:, :END or <topic>-<partition>=START:END"),
        ({"offsets": ("5:6", "7:8")}, "--offsets 5:6: expected one range, or one for each partition that is named"),
        ({"offsets": ("a-0=5:6", "a-0=7:8")}, "--offsets a-0=7:8: expected one range"),
        ({"times": "2026-11-21"}, "--times 2026-11-21: expected START/END, START/ or /END"),
        ({"columns": "offset,of"}, "column 'of': expected each of these once"),
        (
            {"topics": "nothing"},
            "it has 5 partitions, none of which is asked for; expected --topics",
        ),
    ],
)
def test_wrong_usage(options: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of it."""
    monkeypatch.chdir(tmp_path)
    output = options.pop("output", "all.arrow")
    with pytest.raises(UsageError, match=said):
        _export(SAMPLES, output, **options)
    assert list(tmp_path.iterdir()) == []


def test_no_output_is_put_into_a_brokers_log_dir_or_over_another(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    with pytest.raises(UsageError, match=f"{tmp_path} is a broker's log dir; expected a place of its own"):
        _export(SAMPLES, tmp_path / "all.parquet")
    (tmp_path / "meta.properties").unlink()
    (tmp_path / "all.arrow").touch()
    with pytest.raises(UsageError, match="it is there already; expected a new name"):
        _export(SAMPLES, tmp_path / "all.arrow")


@pytest.mark.parametrize(
    "options", [{"offsets": ("txn-mixed-0=5:5",)}, {"times": "2031-01-01T00:00Z/2031-01-01T00:00Z"}]
)
def test_nothing_is_wanted_of_what_is_there(options: dict[str, Any], tmp_path: Path) -> None:
    """As a schedule asks that goes on where it ended: that is no mistake, and an export without rows."""
    assert _export(SAMPLES, tmp_path / "all.arrow", **options).rows == 0
    assert (tmp_path / "all.arrow").exists()


def test_what_brokers_keep_for_themselves_is_left_out(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "__transaction_state-0", tmp_path / "logs" / "__transaction_state-0")
    assert _export(tmp_path / "logs", tmp_path / "all.arrow").rows == 0


def _begun(output: Path, asked: dict[str, str]) -> ExportStaging:
    staging = ExportStaging(output, ".parquet")
    staging.directory.mkdir()
    staging.keep_plan(asked, PlannedExport([[]] * _PARTS, (), ()))
    for number in range(_PARTS):
        written = staging.part(number).with_suffix(".tmp")
        written.write_text(f"rows of {asked}")
        staging.finish(number, FinishedPart(1, 0, (), ()), written)
    return staging


def test_a_kill_amid_its_end_leaves_no_part_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each of its steps: the same export goes on, or begins anew; another one is refused, or finds no part."""
    unlink = Path.unlink
    for killed_at in itertools.count():
        staging, left = _begun(tmp_path / f"{killed_at}.parquet", {"topics": "a"}), killed_at

        def unlink_or_die(path: Path) -> None:
            nonlocal left
            if not left:
                raise KeyboardInterrupt
            left -= 1
            unlink(path)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", unlink_or_die)
            try:
                staging.rename_to(tmp_path / f"{killed_at}.parquet")
            except KeyboardInterrupt:
                pass
            else:
                break
        if staging.earlier_plan({"topics": "a"}) is None:
            assert [staging.finished(number) for number in range(_PARTS)] == [None] * _PARTS
    assert killed_at > _PARTS


_PIECES_OF_TEXT = (b"a", b"\xed", b"\xa0", b"\x80", b"\xf0", b"\x9f", b"\x8f", b"\x90", b"\xc3", b"\xe0", b"\xbf")
_BYTES = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.text(max_size=12).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.sampled_from(_PIECES_OF_TEXT)).map(b"".join),
)
_HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=5), _BYTES), min_size=1, max_size=3)
_MS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-1, 0, 1_700_000_000_123, 253_402_300_800_000]))


@given(st.lists(st.tuples(_BYTES, _BYTES, _MS, _HEADERS), max_size=5))
@example([(b'"\\/\b\f\n\r\t\x00\x1f\x7f', "\u2028\U0001f600".encode(), -62_135_596_800_000, [("", None)])])
@example([(b"\xff", b"\xff\xfe", 253_402_300_799_999, [("ü", b"\xff\xfe\xfd")])])
def test_lines_hold_what_rows_hold(rows: list[tuple[bytes | None, bytes | None, int, Any]]) -> None:
    columns = {
        "key": pa.array([row[0] for row in rows], pa.binary()),
        "value": pa.array([row[1] for row in rows], pa.binary()),
        "topic": pa.array(['a"topic'] * len(rows), pa.string()),
        "partition": pa.array([7] * len(rows), pa.int32()),
        "offset": pa.array(range(len(rows)), pa.int64()),
        "timestamp": pa.array([row[2] for row in rows], pa.int64()).cast(CONSUMED.field("timestamp").type),
        "timestampType": pa.array([-1] * len(rows), pa.int32()),
        "headers": pa.array(
            [None if row[3] is None else [{"key": key, "value": value} for key, value in row[3]] for row in rows],
            CONSUMED.field("headers").type,
        ),
    }
    batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=CONSUMED)
    lines = records_as_json_lines(batch).decode().split("\n")[:-1]
    assert len(lines) == len(rows)
    for number, (line, (key, value, ms, headers)) in enumerate(zip(lines, rows, strict=True)):
        found = json.loads(line)
        assert _without(found, "key") == key and _without(found, "value") == value
        assert (found["topic"], found["partition"], found["offset"]) == ('a"topic', 7, number)
        assert found["timestampType"] == -1
        assert _ms(found["timestamp"]) == ms
        expected = None if headers is None else [(key, value) for key, value in headers]
        assert expected == (
            None if found["headers"] is None else [(each["key"], _without(each, "value")) for each in found["headers"]]
        )


def _without(found: dict[str, Any], name: str) -> bytes | None:
    """The bytes of a field: as text only where they are that."""
    if f"{name}_base64" in found:
        content = base64.b64decode(found[f"{name}_base64"], validate=True)
        assert found[name] is None and not _is_text(content)
        return content
    return None if found[name] is None else str(found[name]).encode()


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _ms(moment: int | str) -> int:
    if isinstance(moment, int):
        return moment
    scalar = pa.scalar(moment.replace("T", " ")).cast(pa.timestamp("ms", "UTC"))
    value: Any = scalar.value  # type: ignore[attr-defined]
    return int(value)
