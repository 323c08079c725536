"""Seeks in files that are not as they should be: a note names each, and what lies around them is answered as ever."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kidxlib.commands.seek import seek
from kidxlib.format.layouts import ATTRIBUTE_TRANSACTIONAL
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.log.log import Log
from tests.support.logs.batches import Batch, encode
from tests.support.seeks import check_offset, check_timestamp, sample_directory
from tests.support.spark.jobs import kidx_build_here, run_here


def _resize(by: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, path.stat().st_size + by)


def _overwrite(before_end: int, data: bytes) -> Callable[[Path], None]:
    def overwrite(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(-before_end, os.SEEK_END)
            file.write(data)

    return overwrite


@dataclass(frozen=True, slots=True)
class HurtIndex:
    """What is done to an index file after the build, and what a note says of it then."""

    suffix: str
    hurt: Callable[[Path], None]
    reason: str


#: Indexes that cannot be right. Each, as all that follows, is of the second segment in a partition of its own.
_INDEXES: Final = {
    "offset-index-of-odd-size": HurtIndex(OFFSET_INDEX_SUFFIX, _resize(-1), "a multiple of 8"),
    "offset-index-past-the-end": HurtIndex(OFFSET_INDEX_SUFFIX, _overwrite(8, b"\xff" * 4), "last offset"),
    "time-index-of-odd-size": HurtIndex(TIME_INDEX_SUFFIX, _resize(-1), "a multiple of 12"),
    "time-index-ending-at-0": HurtIndex(TIME_INDEX_SUFFIX, _overwrite(12, bytes(8)), "last timestamp"),
    "no-offset-index": HurtIndex(OFFSET_INDEX_SUFFIX, Path.unlink, "No such file"),
    "no-time-index": HurtIndex(TIME_INDEX_SUFFIX, Path.unlink, "No such file"),
    "offset-index-without-last-entry": HurtIndex(OFFSET_INDEX_SUFFIX, _resize(-8), "bytes, expected"),
}
#: Logs that are not the cataloged ones: what is done to each after the build, and how many bytes more it has then; None
#: where it is not there.
_LOGS: Final[dict[str, tuple[Callable[[Path], None], int | None]]] = {
    "no-log": (Path.unlink, None),
    "longer-log": (_resize(100), 100),
    "shorter-log": (_resize(-1), -1),
}
#: Logs that were not as they should be before the build.
_TRUNCATED, _QUARANTINED = "truncated-log", "quarantined-log"
#: The partition of each is its place here.
_HURTS: Final = (*_INDEXES, *_LOGS, _TRUNCATED, _QUARANTINED)


class Hurt:
    """The same log in each partition, its second segment hurt in another way; and what one seek answers."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._whole = directory, directory / "whole"
        self._log_dir, self._index_dir, self._catalog = directory / "logs", directory / "index", directory / "catalog"
        self.whole = Log.open(sample_directory(self._whole))
        before, hurt, after = self.whole.segments[:3]
        self.base_offset, self.time = hurt.base_offset, hurt.largest_timestamp
        self.inside_offsets = (hurt.base_offset + 1, after.base_offset - 1)
        self.around_offsets = (before.base_offset + 1, after.base_offset + 1)
        for number in range(len(_HURTS)):
            (self._log_dir / f"hurt-{number}").mkdir(parents=True)
            for log in self._whole.glob("*.log"):
                shutil.copy2(log, self._log_dir / f"hurt-{number}")
        self._build()
        self._answers = self._ask()

    @property
    def log_bytes(self) -> int:
        """Of the segment before it was hurt."""
        return (self._whole / segment_file(self.base_offset, LOG_SUFFIX)).stat().st_size

    def log(self, hurt: str) -> Path:
        return self._log_dir / f"hurt-{_HURTS.index(hurt)}" / segment_file(self.base_offset, LOG_SUFFIX)

    def index(self, hurt: str) -> Path:
        """The one that is hurt."""
        return self._index_dir / f"hurt-{_HURTS.index(hurt)}" / segment_file(self.base_offset, _INDEXES[hurt].suffix)

    def _build(self) -> None:
        _resize(-10)(self.log(_TRUNCATED))
        transactional = Batch(producer_id=7, producer_epoch=0, attributes=ATTRIBUTE_TRANSACTIONAL)
        batches = [transactional, replace(transactional, attributes=0)]
        self.log(_QUARANTINED).write_bytes(b"".join(encode(self.base_offset, batches)))
        places = ("--source", f"broker={self._log_dir}", "--index-dir", self._index_dir, "--catalog", self._catalog)
        ended = kidx_build_here(*places)
        assert ended.code == 3, ended.err
        for name, index in _INDEXES.items():
            index.hurt(self.index(name))
        for name, (hurt, _) in _LOGS.items():
            hurt(self.log(name))

    def _ask(self) -> list[dict[str, Any]]:
        """Each partition the same: for offsets around the segment and in it, and for a time in it."""
        asked = [*((offset, None) for offset in (*self.around_offsets, *self.inside_offsets)), (None, self.time)]
        questions = [(number, *question) for number in range(len(_HURTS)) for question in asked]
        columns = {
            "topic": ["hurt"] * len(questions),
            "partition": pa.array([number for number, _, _ in questions], pa.int32()),
            "offset": [offset for _, offset, _ in questions],
            "timestamp": [time for _, _, time in questions],
        }
        pq.write_table(pa.table(columns), self._directory / "questions.parquet")
        queries, output = self._directory / "questions.parquet", self._directory / "answers.json"
        ended = run_here(seek, "--catalog", self._catalog, "--queries", queries, "--output", output)
        assert ended.code == 3, ended.err
        answers = [json.loads(line) for line in output.read_text().splitlines()]
        assert len(answers) == len(questions)
        return answers

    def around(self) -> list[dict[str, Any]]:
        """The answers from the segments before and after, of all partitions."""
        found = [answer for answer in self._answers if answer["target"] in self.around_offsets]
        assert len(found) == 2 * len(_HURTS)
        return found

    def inside(self, hurt: str) -> list[dict[str, Any]]:
        """The answers from the segment that is hurt in this way."""
        of_partition = [answer for answer in self._answers if answer["partition"] == _HURTS.index(hurt)]
        found = [answer for answer in of_partition if answer["target"] not in self.around_offsets]
        assert [answer["query"] for answer in found].count("timestamp") == 1 and len(found) == 3
        return found


@pytest.fixture(scope="module")
def hurt(tmp_path_factory: pytest.TempPathFactory) -> Hurt:
    return Hurt(tmp_path_factory.mktemp("hurt"))


def test_what_lies_around_is_answered_as_ever(hurt: Hurt) -> None:
    for answer in hurt.around():
        check_offset(hurt.whole, answer["target"], answer)
        assert answer["note"] is None, answer


@pytest.mark.parametrize("name", _INDEXES)
def test_a_scan_replaces_an_index_that_cannot_be_right(hurt: Hurt, name: str) -> None:
    path, reason = hurt.index(name), _INDEXES[name].reason
    for answer in hurt.inside(name):
        check = check_offset if answer["query"] == "offset" else check_timestamp
        check(hurt.whole, answer["target"], answer, ["answered from a scan of the log"])
        if answer["query"] == "timestamp" or path.suffix == OFFSET_INDEX_SUFFIX:  # else nobody looked into it
            assert f"{path}: " in answer["note"] and reason in answer["note"], answer


@pytest.mark.parametrize("name", _LOGS)
def test_a_log_that_is_not_the_cataloged_one_is_not_searched(hurt: Hurt, name: str) -> None:
    _, more = _LOGS[name]
    size = hurt.log_bytes
    reason = "No such file or directory" if more is None else f"{size + more} bytes, expected {size}"
    for answer in hurt.inside(name):
        assert not answer["found"] and not answer["answered"], answer
        assert f"{hurt.log(name)}: {reason}" in answer["note"], answer


def test_a_quarantined_log_is_not_searched(hurt: Hurt) -> None:
    what = f"{hurt.log(_QUARANTINED)} was quarantined (non-transactional-in-transaction at byte "
    for answer in hurt.inside(_QUARANTINED):
        if answer["query"] == "offset":  # a time may be found in the segment after
            assert not answer["found"] and not answer["answered"], answer
        assert what in answer["note"], answer


def test_a_truncated_log_is_searched_to_where_it_was_truncated(hurt: Hurt) -> None:
    what = f"{hurt.log(_TRUNCATED)} was truncated (batch-overruns-file at byte "
    for answer in hurt.inside(_TRUNCATED):
        before_the_end = answer["segment_base_offset"] == hurt.base_offset
        assert (what in (answer["note"] or "")) != before_the_end, answer
