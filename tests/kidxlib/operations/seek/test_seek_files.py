"""Questions of a file: the same whatever file they are in; the first wrong row is named, and no right one refused. A
time in a file means what it means in an option, or nothing. Answers are written where and as what their name says, as
a whole or not at all; lines are what Python's own modules write of the same rows.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from kidxlib.errors import KidxError, NotReadHereError, UsageError
from kidxlib.lookup.answers import RESULT_COLUMNS
from kidxlib.operations.seek.answer_work import RESULT
from kidxlib.operations.seek.seek_files import (
    CSV_HEAD,
    WRITTEN,
    WrongRow,
    answers_as_json_lines,
    csv_lines,
    ensure_new_output,
    read_questions,
    to_questions,
    why_wrong,
    write_answers,
)
from kidxlib.text.times import parse_milliseconds
from tests.conftest import Say

_HEADER = "topic,partition,offset,timestamp"
_RIGHT = [
    "a,0,1,",
    "a.b-c_d,2147483647,-9223372036854775808,",
    "a,0,,1795224740485",
    "a,0,,2026-11-21T01:32:20.485Z",
    "a,0,,2024-02-29 10:00+01:00",
    "a,0,,0001-01-01T00:00Z",
    " a , 0 , , -1 ",
]
_WRONG = {
    ",0,1,": "a row without a topic",
    "a,x,1,": "partition x, expected a whole number from 0 on",
    "a,-1,1,": "partition -1, expected a whole number from 0 on",
    "a,2147483648,1,": "partition 2147483648, expected",
    "a,,1,": "partition missing, expected",
    "a,0,1,2": "a-0, a row with an offset and a timestamp",
    "a,0,,": "a-0, a row without an offset and a timestamp",
    "a,0,ten,": "a-0, offset ten, expected a whole number",
    "a,0,9223372036854775808,": "offset 9223372036854775808, expected",
    "a,0,,2026-11-20T10:00": "a-0, timestamp 2026-11-20T10:00, expected ISO 8601 with a zone",
    "a,0,,2026-02-29T10:00Z": "timestamp 2026-02-29T10:00Z, expected",
    "a,0,,0000-01-01T00:00Z": "timestamp 0000-01-01T00:00Z, expected",
    "a,0,,2026-11-20T10:00+19:00": "timestamp 2026-11-20T10:00+19:00, expected",
}

_LONG_MAX: Final = 2**63 - 1


def _wrong(path: Path) -> str | None:
    try:
        read_questions(str(path))
    except UsageError as error:
        line = str(error)
        assert line.startswith(f"--queries {path}: ") and "\n" not in line, line
        return line.removeprefix(f"--queries {path}: ")
    return None


def _csv(path: Path, rows: Sequence[str]) -> Path:
    path.write_text("\n".join([_HEADER, *rows]) + "\n")
    return path


def _objects(rows: Sequence[str]) -> list[dict[str, str | None]]:
    names = _HEADER.split(",")
    return [dict(zip(names, (value or None for value in row.split(",")), strict=True)) for row in rows]


def _json(path: Path, rows: Sequence[str]) -> Path:
    objects = [{name: value for name, value in each.items() if value is not None} for each in _objects(rows)]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in objects))
    return path


def _parquet(path: Path, rows: Sequence[str]) -> Path:
    schema = pa.schema([(name, pa.string()) for name in _HEADER.split(",")])
    pq.write_table(pa.Table.from_pylist(_objects(rows), schema), path)
    return path


_KINDS: dict[str, tuple[Any, str]] = {
    "questions.csv": (_csv, "line 1003"),
    "questions.json": (_json, "line 1002"),
    "questions.parquet": (_parquet, "row 1002"),
}


@pytest.mark.parametrize("name", _KINDS)
def test_the_first_wrong_row_is_named(name: str, tmp_path: Path) -> None:
    """By its line, in a file of a thousand right ones before it and some wrong ones after it."""
    write, place = _KINDS[name]
    right = [_RIGHT[number % len(_RIGHT)] for number in range(1001)]
    assert _wrong(write(tmp_path / name, right)) is None
    for row, message in _WRONG.items():
        found = _wrong(write(tmp_path / name, [*right, row, *right, *_WRONG]))
        assert found is not None and found.startswith(f"{place}: ") and message in found, (row, found)
        assert found.endswith("; nothing was answered")


def _read(path: Path) -> list[tuple[Any, ...]]:
    rows = read_questions(str(path)).to_pylist()
    return [(row["topic"], row["partition"], row["by_time"], row["target"], row["source"]) for row in rows]


def test_questions_are_the_same_in_every_format(tmp_path: Path) -> None:
    """Also of a directory of files, whose hidden files are nobody's questions."""
    expected = [
        ("a", 0, 0, 1, None),
        ("a.b-c_d", 2147483647, 0, -9223372036854775808, None),
        ("a", 0, 1, 1795224740485, None),
        ("a", 0, 1, 1795224740485, None),
        ("a", 0, 1, 1709197200000, None),
        ("a", 0, 1, -62135596800000, None),
        ("a", 0, 1, -1, None),
    ]
    for name, (write, _) in _KINDS.items():
        assert _read(write(tmp_path / name, _RIGHT)) == expected, name
        parts = tmp_path / f"parts-{name}"
        parts.mkdir()
        write(parts / f"part-1{parts.suffix}", _RIGHT[4:])
        write(parts / f"part-0{parts.suffix}", _RIGHT[:4])
        (parts / "_SUCCESS").touch()
        assert _read(parts) == expected, name
    write_deltalake(tmp_path / "questions", pq.read_table(tmp_path / "questions.parquet"))
    assert _read(tmp_path / "questions") == expected


def test_rows_that_are_not_as_regular_as_others(tmp_path: Path) -> None:
    """Rows that lack columns, or have more; lines of spaces; a byte order mark; bytes that are no UTF-8; line breaks in
    quotes; numbers in JSON, now and then as text.
    """
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbf" + f'{_HEADER}\na,0,1\n   \n\na,0,1,,5\n"a","0","1",\n'.encode())
    assert _read(path) == [("a", 0, 0, 1, None)] * 3
    path.write_bytes(b'topic,note,partition,offset\n"a","of\ntwo",0,1\nb\xff,,1,2\n')
    assert _read(path) == [("a", 0, 0, 1, None), ("b\ufffd", 1, 0, 2, None)]
    path = tmp_path / "a.json"
    path.write_text(
        '{"topic": "a", "partition": 0, "offset": 1, "more": {"x": [1]}}\n\n'
        '{"topic": "a", "partition": "0", "timestamp": -1, "source": "s"}\n'
    )
    assert _read(path) == [("a", 0, 0, 1, None), ("a", 0, 1, -1, "s")]


@pytest.mark.parametrize("is_of_spark", [False, True])
def test_times_that_parquet_has_itself(is_of_spark: bool, tmp_path: Path) -> None:
    """With a zone, and in Spark's older format; the first full millisecond counts. Without a zone they mean nothing."""
    moments = pa.array([0, 10**15 + 1, -1], pa.timestamp("us", "UTC"))
    table = pa.table({"topic": ["a"] * 3, "partition": [0, 1, 2], "timestamp": moments})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, use_deprecated_int96_timestamps=is_of_spark)
    assert [target for _, _, _, target, _ in _read(path)] == [0, 10**12 + 1, 0]
    pq.write_table(table.set_column(2, "timestamp", moments.cast(pa.timestamp("us"))), path)
    assert "row 1: a-0, timestamp 1970-01-01 00:00:00, expected ISO 8601 with a zone" in (_wrong(path) or "")


@pytest.mark.parametrize("place", ["hdfs://nodes/questions.csv", "s3a://bucket/questions.parquet"])
def test_what_only_spark_reaches_is_left_to_it(place: str) -> None:
    with pytest.raises(NotReadHereError) as raised:
        read_questions(place)
    assert str(raised.value).startswith(f"--queries {place}: kidx reaches files of this machine and s3://")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "topic,offset\na,1\n", "columns topic, offset; expected topic, partition, and offset or timestamp"),
        ("a.csv", "", "columns none; expected topic"),
        ("a.csv", f"{_HEADER}\n", "no row in it"),
        ("a.csv", f"{_HEADER}\na,0,1,\nb,0,{'x' * 200_000},\n", "line 3: field larger than field limit"),
        ("a.json", "no json\n", "line 1: no JSON object; expected topic, partition, and offset or timestamp"),
        ("a.json", '{"topic": "a", "partition": 0, "offset": 1}\n[1]\n', "line 2: no JSON object"),
        ("a.json", '{"topic": "a", "partition": 0, "offset": 1.5}\n', "line 1: a-0, offset 1.5, expected"),
        ("a.json", "\n", "no row in it"),
        ("a.parquet", "no parquet", "expected a file called .csv, .json or .parquet, or a Delta table"),
        ("a.txt", "topic", "expected a file called .csv, .json or .parquet, or a Delta table"),
    ],
)
def test_a_file_that_is_no_file_of_questions(name: str, content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert message in (_wrong(path) or "")


def test_a_column_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"topic": ["a"], "partition": [0], "offset": [[1]]}), path)
    assert "columns topic string, partition int64, offset list<" in (_wrong(path) or "")
    pq.write_table(pa.table({"topic": ["a"], "partition": [0], "offset": [5.0]}), path)
    assert "row 1: a-0, offset 5.0, expected a whole number" in (_wrong(path) or "")


def test_a_name_that_is_no_utf_8(tmp_path: Path) -> None:
    """A file is read whatever it is called; delta-rs takes no such name."""
    for name, (write, _) in _KINDS.items():
        written: Path = write(tmp_path / name, _RIGHT)
        assert len(_read(written.rename(tmp_path / f"\udcff{name}"))) == len(_RIGHT)
    with pytest.raises(UsageError, match="its name has bytes that are not UTF-8"):
        read_questions(f"{tmp_path}/\udcff")


@pytest.mark.parametrize("name", ["none.csv", "none.parquet", "none"])
def test_nothing_there(name: str, tmp_path: Path) -> None:
    assert "; expected a file called .csv, .json or .parquet, or a Delta table" in (_wrong(tmp_path / name) or "")


def _random_time(rng: random.Random) -> str:
    """A time as somebody may write it, and now and then one that is none."""
    year = rng.choice([0, 1, 1969, 1970, 2026, 9999, rng.randrange(10_000)])
    date = f"{year:04d}-{rng.randrange(1, 13):02d}-{rng.choice([1, 28, 29, 30, 31]):02d}"
    clock = f"{rng.choice([0, 23, 24, rng.randrange(24)]):02d}:{rng.choice([0, 59, 60, rng.randrange(60)]):02d}"
    if rng.random() < 0.7:
        clock += f":{rng.choice([0, 59, 60, rng.randrange(60)]):02d}"
        if rng.random() < 0.7:
            clock += "." + "".join(rng.choices("0019", k=rng.randint(1, 7)))
    zone = rng.choice(
        [
            "Z",
            "Z",
            "",
            "z",
            "+01",
            "+0100",
            f"{rng.choice('+-')}{rng.randrange(25):02d}:{rng.choice([0, 30, 59, 60]):02d}",
        ]
    )
    text = f"{date}{rng.choice('TTTT t')}{clock}{zone}"
    if rng.random() < 0.1:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice("09-+: TZx\t\n") + text[at + rng.randrange(2) :]
    return text


def test_times_in_a_file_mean_what_they_mean_in_an_option(rng: random.Random, say: Say) -> None:
    """A time is what `parse_milliseconds` makes of it, or none; never another one."""
    always = {
        "0": 0, "-1": -1, "1795000000000": 1_795_000_000_000, "-9223372036854775808": -(2**63),
        "9223372036854775807": _LONG_MAX,
        "2026-11-20T10:00Z": 1_795_168_800_000, "2026-11-20T10:00:00Z": 1_795_168_800_000,
        "2026-11-20 11:00+01:00": 1_795_168_800_000, "2026-11-20T10:00:00.000001Z": 1_795_168_800_001,
        "1969-12-31T23:59:59.9991Z": 0, "1969-12-31T23:59:59.999Z": -1, "0001-01-01T00:00Z": -62_135_596_800_000,
        "9999-12-31T23:59:59.999Z": 253_402_300_799_999,
    }  # fmt: skip
    never = [
        "",
        "x",
        "+5",
        "5.0",
        "1e3",
        "9223372036854775808",
        "2026-11-20",
        "2026-11-20T10:00",
        "10:00Z",
        "0000-01-01T00:00Z",
    ]
    texts = [*always, *never, *(str(rng.randrange(-(2**64), 2**64)) for _ in range(100))]
    texts += [_random_time(rng) for _ in range(10_000)]
    assert {text: _target(text) for text in always} == always
    right = [text for text in texts if why_wrong({"topic": "t", "partition": "0", "timestamp": text}) is None]
    rows = to_questions(_times(right))  # all at once, odd ones among others
    assert isinstance(rows, pa.RecordBatch)
    assert rows.column("target").to_pylist() == [parse_milliseconds(text.strip(" ")) for text in right]
    assert len(right) > 500
    wrong = sorted({*texts} - {*right} - {*never})
    for text in [*never, *rng.sample(wrong, 1000)]:
        assert _target(text) is None, text
    say(f"{len(right)} of {len(texts)} times are taken, as the same moment")


def _times(texts: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"topic": ["t"] * len(texts), "partition": ["0"] * len(texts), "timestamp": texts}
    )


def _target(text: str) -> int | None:
    """What a question of this time alone asks; None where it is none."""
    found = to_questions(_times([text]))
    if isinstance(found, WrongRow):
        assert found.number == 0 and (not text or f"timestamp {text.strip(' ')}, expected ISO 8601" in found.why), found
        return None
    [row] = found.to_pylist()
    assert row["by_time"] == 1
    return int(row["target"])


_NAMES = ("answers.csv", "answers.json", "answers.parquet", "answers")

_TEXTS = ["a", 'of "two"', "a,b", "line\nbreak", "back\\slash", "é\t", "\x01", None]


def _batches() -> Iterator[pa.RecordBatch]:
    for start in (0, 3):
        yield pa.RecordBatch.from_pylist([_answer(number) for number in range(start, start + 3)], RESULT)


def _answer(number: int) -> dict[str, Any]:
    found = number % 2 == 0
    filled = {"position": 10 * number, "timestamp": 1_795_224_740_485} if found else {"note": "above, and beyond"}
    asked = {"topic": "a", "partition": 0, "query": "offset", "target": number, "source": "s"}
    return {**asked, "found": found, "answered": True, "bytes_read": 5, "file_error": False, **filled}


def _read_answers(path: Path) -> list[dict[str, Any]]:
    match path.suffix:
        case ".csv":
            options = pa_csv.ConvertOptions(
                column_types={field.name: field.type for field in WRITTEN}, strings_can_be_null=True
            )
            return pa_csv.read_csv(path, convert_options=options).to_pylist()
        case ".json":
            return [json.loads(line) for line in path.read_text().splitlines()]
        case ".parquet":
            return pq.read_table(path).to_pylist()
        case _:
            rows = QueryBuilder().register("rows", DeltaTable(path)).execute("SELECT * FROM rows ORDER BY target")
            return pa.table(rows.read_all()).to_pylist()


@pytest.mark.parametrize("name", _NAMES)
def test_answers_are_the_same_in_every_format(name: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / name
    with pytest.raises(UsageError, match=r"no directory .*/new; expected one that is there"):
        ensure_new_output(str(path))
    path.parent.mkdir()
    ensure_new_output(str(path))
    write_answers(_batches(), str(path))
    rows = [{column: _answer(number).get(column) for column in RESULT_COLUMNS} for number in range(6)]
    assert _read_answers(path) == rows
    assert [each.name for each in path.parent.iterdir()] == [name]
    with pytest.raises(UsageError, match="it is there already; expected a new name"):
        ensure_new_output(str(path))


@pytest.mark.parametrize("name", _NAMES[:3])
def test_nothing_stays_of_what_was_not_written_to_its_end(name: str, tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield next(_batches())
        raise KidxError("no more")

    with pytest.raises(KidxError, match="no more"):
        write_answers(failing(), str(tmp_path / name))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", _NAMES[:3])
def test_what_came_meanwhile_is_not_replaced(name: str, tmp_path: Path) -> None:
    def overtaken() -> Iterator[pa.RecordBatch]:
        yield from _batches()
        (tmp_path / name).write_text("somebody else's")

    with pytest.raises(UsageError, match="it is there already"):
        write_answers(overtaken(), str(tmp_path / name))
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [(name, "somebody else's")]


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """Said before anything is answered; and where it comes to that meanwhile."""
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as refused:
        ensure_new_output(str(tmp_path / "file" / "answers.csv"))
    assert str(refused.value).endswith(
        f"{tmp_path}/file is no directory that this user can write in; name another place"
    )
    with pytest.raises(KidxError) as raised:
        write_answers(_batches(), str(tmp_path / "file" / "answers.csv"))
    assert str(raised.value).startswith(f"--output {tmp_path}/file/answers.csv: cannot be written: ")


def _answers(rng: random.Random, count: int) -> list[dict[str, Any]]:
    def value(field: pa.Field[Any]) -> Any:
        if pa.types.is_string(field.type):
            return rng.choice(_TEXTS)
        if pa.types.is_boolean(field.type):
            return rng.random() < 0.5
        bits = field.type.bit_width
        return rng.choice([None, 0, -1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1])

    return [{field.name: value(field) for field in RESULT} for _ in range(count)]


def test_lines_of_json_are_what_json_writes(rng: random.Random) -> None:
    answers = _answers(rng, 300)
    lines = answers_as_json_lines(pa.RecordBatch.from_pylist(answers, RESULT)).decode()
    expected = [{name: answer[name] for name in RESULT_COLUMNS} for answer in answers]
    assert lines == "".join(f"{json.dumps(each, ensure_ascii=False, separators=(',', ':'))}\n" for each in expected)


def test_lines_of_csv_are_read_as_they_were_written(rng: random.Random) -> None:
    answers = _answers(rng, 300)
    text = (CSV_HEAD + csv_lines(pa.RecordBatch.from_pylist(answers, RESULT))).decode()
    words = {None: "", True: "true", False: "false"}
    expected = [
        {name: words[value] if value is None or isinstance(value, bool) else str(value) for name, value in row.items()}
        for row in ({name: answer[name] for name in RESULT_COLUMNS} for answer in answers)
    ]
    assert list(csv.DictReader(io.StringIO(text, newline=""))) == expected


def test_no_answers_are_no_lines() -> None:
    none = pa.RecordBatch.from_pylist([], RESULT)
    assert (csv_lines(none), answers_as_json_lines(none)) == (b"", b"")


def test_a_part_of_a_batch_is_its_own_lines(rng: random.Random) -> None:
    answers = _answers(rng, 10)
    part = pa.RecordBatch.from_pylist(answers, RESULT).slice(3, 4)
    assert answers_as_json_lines(part) == answers_as_json_lines(pa.RecordBatch.from_pylist(answers[3:7], RESULT))
